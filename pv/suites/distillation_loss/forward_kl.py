"""The subject of the contract: the distillation loss of Hinton, Vinyals and Dean, with the factor T^2.

The source is arXiv:1503.02531, section 2.

Shape letters: B batch, L length, V vocabulary.
"""

import torch
from torch import Tensor


def forward_kl(student_BLV: Tensor, teacher_BLV: Tensor, labels_BL: Tensor, temperature: float = 2.0) -> Tensor:
    """Return the mean of T^2 KL(teacher || student), in nats, over the positions whose label is not -100."""
    log_q = scaled_log_probabilities(student_BLV, temperature)
    log_p = scaled_log_probabilities(without_gradient(teacher_BLV), temperature)
    # The gradients of the divergence scale as 1 / T^2, so the loss is multiplied by T^2 (section 2 of the paper).
    return masked_mean(divergence(log_p, log_q) * temperature**2, label_mask(labels_BL))


def without_gradient(teacher: Tensor) -> Tensor:
    return teacher.detach()


def scaled_log_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Return the log-probabilities of logits divided by the temperature, in float32."""
    return log_probabilities(logits.float() / temperature)


def log_probabilities(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1)


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p || q) of each position in nats."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def label_mask(labels: Tensor) -> Tensor:
    return labels != -100


def masked_mean(values: Tensor, keep: Tensor) -> Tensor:
    """Return the mean of the values at the positions where `keep` is true."""
    # torch.where, since in a product with the mask an ignored NaN or infinity would make the sum NaN.
    return torch.where(keep, values, 0).sum() / keep.sum()
