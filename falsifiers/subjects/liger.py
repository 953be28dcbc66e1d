"""Liger's fused linear distillation loss (0.8.5, `liger_kernel.chunked_loss.LigerFusedLinearJSDLoss`).

Mapped: logits are hidden states behind the identity, so the loss forms the very logits; beta = 0 is
KL(teacher || student); `weight_hard_loss` is ce_weight; the soft term has no factor tau^2, so `weight_soft_loss` is
kd_weight·tau^2; the mean over unmasked positions (at least 1) is multiplied by their number. Models of two vocabularies
have two identities. Not expressible: -inf at one position, since a row of hidden states times a weight of 0 is NaN.
Arithmetic is float32: the loss is added up in a float32 scalar. Run without torch.compile, as on a CPU it must be.
"""

from __future__ import annotations

from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss
from torch import Tensor

from falsifiers.subjects.adapter import Fused


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
