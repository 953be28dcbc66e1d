"""Knowledge-distillation loss over logits, and its closed-form gradient.

    L = sum over scored rows of  ce_weight * CE(s, y)  +  kd_weight * tau^2 * D(softmax(t/tau), softmax(s/tau))

D is one of `objective.DIVERGENCES`, KL(teacher || student) by default. "jensen_shannon" with `beta` is KL(teacher ||
student) at beta = 0 and KL(student || teacher) at beta = 1 (arXiv:2306.13649).
s: student logits, t: teacher logits, y: label, tau: temperature. Logarithms are natural, so all values are in nats.
Source: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2. The factor tau^2 keeps the size of the teacher's
gradient constant as tau grows; the chain rule cancels one tau, so the gradient has the factor tau.

Domain of loss and gradient:

* `labels_BT[b, i]` is the target of `student_BTV[b, i]`; labels are not shifted here. A position whose label equals
  `ignore_index` is unscored: its logits, even NaN, have no influence.
* A token whose teacher logit is -inf has no KL term, whatever the student's logit. If the student's logit is -inf where
  the teacher's probability is positive, or at the label, the loss is +inf and the gradient is finite. In the reverse KL
  the two models change places; Jensen-Shannon is finite for 0 < beta < 1.
* A term of weight 0 is absent, not multiplied by 0, so its infinities are absent too.
* With no scored position (also B = 0 or T = 0), sum and count are 0, the gradient is all zeros, and the sum is still
  differentiable.
* Weights are supported up to 1e30, which float32 can represent.

Errors, all subclasses of `ValueError`:

* `LogitsError`: NaN, +inf, or only -inf at a scored position of either model, whatever the weights.
* `LabelError`: a scored label outside the vocabulary.
* `VocabularyError`: different vocabulary sizes.
* `ShapeError`: other shapes, dtypes or devices that do not match.
* `SettingError`: a temperature outside `TEMPERATURES`, a negative or non-finite weight, an unknown divergence, a beta
  outside [0, 1], a non-integer `ignore_index`.

float16, bfloat16 and float32 logits are computed in float32, float64 logits in float64; of two models the wider dtype
is used. Weighting, and sums over tokens and positions, are float64; counts are int64. Accuracy is claimed for
temperatures from 0.25 to 20; in the rest of `TEMPERATURES` only that nothing overflows.

Results depend on the arguments alone: not on autocast, grad mode, default dtype or device, memory layout or earlier
calls; no random number is drawn. Results are owned by the caller: ordinary tensors (inference tensors under inference
mode) that share no memory with the arguments and may be changed in place.

Shape letters: B batch, T position, V vocabulary, N scored positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference_trainer.distillation.checks import check_tensors
from reference_trainer.distillation.domain import IGNORE_INDEX, TEMPERATURES
from reference_trainer.distillation.rows import Rows, Weights, loss_by_blocks, weighted_sum

__all__ = ["IGNORE_INDEX", "TEMPERATURES", "LossSum", "kd_logit_gradient", "kd_loss"]


@dataclass(frozen=True, slots=True)
class LossSum:
    """An undivided loss.

    sum: nats summed over scored positions, a float64 scalar, differentiable with respect to the student's logits.
    count: exact number of scored positions, an int64 scalar on the same device.
    """

    sum: Tensor
    count: Tensor


def kd_loss(
    student_BTV: Tensor,
    teacher_BTV: Tensor,
    labels_BT: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    divergence: str = "forward_kl",
    beta: float = 0.5,
    ignore_index: int = IGNORE_INDEX,
) -> LossSum:
    """Return ce_weight * CE + kd_weight * temperature^2 * divergence in nats, summed over scored positions.

    student_BTV, teacher_BTV: floating logits [B, T, V]; labels_BT: integers [B, T]. Sum and count are returned
    undivided. The sum is differentiable with respect to the student only; the teacher is detached.
    Domain, dtypes and errors: see the module's docstring. Source: arXiv:1503.02531, section 2.
    """
    check_tensors(student_BTV, teacher_BTV, labels_BT)
    weights = Weights(
        temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight, divergence=divergence, beta=beta
    )
    scale = 1.0 if torch.is_grad_enabled() and student_BTV.requires_grad else None
    rows = loss_by_blocks(student_BTV, teacher_BTV, labels_BT, weights, ignore_index=ignore_index, scale=scale)
    total = _Loss.apply(student_BTV, rows, weights)  # type: ignore[no-untyped-call]  # torch has no types for it
    return LossSum(sum=total, count=rows.count)


def kd_logit_gradient(
    student_BTV: Tensor,
    teacher_BTV: Tensor,
    labels_BT: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    divergence: str = "forward_kl",
    beta: float = 0.5,
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    """Return the derivative of `kd_loss(...).sum` with respect to the student's logits, in closed form.

    ce_weight * (softmax(s) - onehot(y)) + kd_weight * tau * (softmax(s/tau) - softmax(t/tau)) at scored positions for
    KL(teacher || student), for the others see `divergences`; exactly 0 elsewhere. Shape [B, T, V]; float64 for a
    float64 student, otherwise float32; always finite; in nats per logit, of the sum: the caller divides. Domain and
    errors: as for `kd_loss`. Source: arXiv:1503.02531, section 2, equation 2.
    """
    weights = Weights(
        temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight, divergence=divergence, beta=beta
    )
    rows = loss_by_blocks(student_BTV, teacher_BTV, labels_BT, weights, ignore_index=ignore_index, scale=1.0)
    return rows.gradient_BTV


class _Loss(torch.autograd.Function):
    """The weighted sum of a walk's rows, with the gradient that the walk has formed."""

    @staticmethod
    def forward(ctx: Any, student: Tensor, rows: Rows, weights: Weights) -> Tensor:
        ctx.gradient, ctx.dtype = rows.gradient_BTV, student.dtype
        return weighted_sum(rows, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_sum: Tensor) -> tuple[Tensor | None, ...]:
        return (ctx.gradient * grad_sum).to(ctx.dtype), None, None
