"""Liger's fused linear distillation loss (0.8.5, `liger_kernel.chunked_loss.LigerFusedLinearJSDLoss`).

Mapping: logits are hidden states with the identity as output weights, so the loss computes the same logits; beta = 0 is
KL(teacher || student); `weight_hard_loss` is ce_weight; the soft term has no factor tau^2, so `weight_soft_loss` is
kd_weight·tau^2; the mean over unmasked positions (at least 1) is multiplied by their number. Models with different
vocabularies have different identities. A logit of -inf cannot be expressed: -inf times a weight of 0 is NaN. Arithmetic
is float32, because the loss is accumulated in a float32 scalar. torch.compile is off, as required on CPU.
"""

from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss
from torch import Tensor

from falsifiers.peers.adapter import Fused


def _mean(
    student_NH: Tensor, student_VH: Tensor, teacher_NH: Tensor, teacher_WH: Tensor, labels_N: Tensor,
    *, hard: float, soft: float, tau: float,
) -> Tensor:  # fmt: skip
    loss = LigerFusedLinearJSDLoss(
        weight_hard_loss=hard, weight_soft_loss=soft, beta=0.0, temperature=tau, compiled=False
    )
    mean: Tensor = loss(student_NH, student_VH, teacher_NH, teacher_WH, labels_N)
    return mean


chunked_jsd = Fused(_mean)
