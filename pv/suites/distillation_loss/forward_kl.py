"""The suite's own subject: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2, with the factor T^2.

Shape letters: B batch, L length, V vocabulary.
"""

import torch
from torch import Tensor


def forward_kl(student_BLV: Tensor, teacher_BLV: Tensor, labels_BL: Tensor, temperature: float = 2.0) -> Tensor:
    """Return T^2 KL(teacher || student) in nats, the mean over positions whose label is not -100."""
    log_q, log_p = tempered(student_BLV, temperature), tempered(without_gradient(teacher_BLV), temperature)
    # Gradients of soft targets scale as 1 / T^2, so the loss is multiplied by T^2 (section 2 of the paper).
    rows_BL = divergence(log_p, log_q) * temperature**2
    return masked_mean(rows_BL, label_mask(labels_BL))


def without_gradient(teacher: Tensor) -> Tensor:
    return teacher.detach()


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Return the log-probabilities of logits divided by the temperature, in float32."""
    return log_probabilities(logits.float() / temperature)


def log_probabilities(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1)


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p || q) of each position in nats."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def label_mask(labels: Tensor) -> Tensor:
    return labels != -100


def masked_mean(rows: Tensor, keep: Tensor) -> Tensor:
    """Return the mean over the positions that count."""
    # where, not a product: a position that does not count may be NaN or infinite.
    return torch.where(keep, rows, 0).sum() / keep.sum()
