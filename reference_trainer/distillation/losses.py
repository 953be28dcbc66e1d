"""Knowledge-distillation loss over logits, and its closed-form gradient.

    L = sum over scored rows of  ce_weight * CE(s, y)  +  kd_weight * tau^2 * KL(softmax(t/tau) || softmax(s/tau))

s: student logits, t: teacher logits, y: label, tau: temperature. Logarithms are natural, so all values are in nats.
Source: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2. The factor tau^2 keeps the size of the teacher's
gradient constant as tau grows; the chain rule cancels one tau, so the gradient has the factor tau.

Domain of loss and gradient:

* `labels_BT[b, i]` is the target of `student_BTV[b, i]`; labels are not shifted here. A position whose label equals
  `ignore_index` is unscored: its logits, even NaN, have no influence.
* A token whose teacher logit is -inf has no KL term, whatever the student's logit. If the student's logit is -inf where
  the teacher's probability is positive, or at the label, the loss is +inf and the gradient is finite.
* A term of weight 0 is absent, not multiplied by 0, so its infinities are absent too.
* With no scored position (also B = 0 or T = 0), sum and count are 0, the gradient is all zeros, and the sum is still
  differentiable.
* Weights are supported up to 1e30, which float32 can represent.

Errors, all subclasses of `ValueError`:

* `LogitsError`: NaN, +inf, or only -inf at a scored position of either model, whatever the weights.
* `LabelError`: a scored label outside the vocabulary.
* `VocabularyError`: different vocabulary sizes.
* `ShapeError`: other shapes, dtypes or devices that do not match.
* `SettingError`: a temperature outside `TEMPERATURES`, a negative or non-finite weight, a non-integer `ignore_index`.

float16, bfloat16 and float32 logits are computed in float32, float64 logits in float64; of two models the wider dtype
is used. Weighting, and sums over tokens and positions, are float64; counts are int64. Accuracy is claimed for
temperatures from 0.25 to 20; in the rest of `TEMPERATURES` only that nothing overflows.

Results depend on the arguments alone: not on autocast, grad mode, default dtype or device, memory layout or earlier
calls; no random number is drawn. Results are owned by the caller: ordinary tensors (inference tensors under inference
mode) that share no memory with the arguments and may be changed in place.

Shape letters: B batch, T position, V vocabulary, N scored positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_trainer.distillation.domain import IGNORE_INDEX, TEMPERATURES
from reference_trainer.errors import LabelError, LogitsError, SettingError, ShapeError, VocabularyError

__all__ = ["IGNORE_INDEX", "TEMPERATURES", "LossSum", "forward_kl", "kd_logit_gradient", "kd_loss"]


@dataclass(frozen=True, slots=True)
class LossSum:
    """An undivided loss.

    sum: nats summed over scored positions, a float64 scalar, differentiable with respect to the student's logits.
    count: exact number of scored positions, an int64 scalar on the same device.
    """

    sum: Tensor
    count: Tensor


@dataclass(frozen=True, slots=True)
class _ScoredRows:
    """Logits of the scored rows in the dtype of the computation, each row shifted to a maximum of 0."""

    student_NV: Tensor
    teacher_NV: Tensor
    labels_N: Tensor
    scored_BT: Tensor


def kd_loss(
    student_BTV: Tensor,
    teacher_BTV: Tensor,
    labels_BT: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    ignore_index: int = IGNORE_INDEX,
) -> LossSum:
    """Return ce_weight * CE + kd_weight * temperature^2 * KL(teacher || student) in nats, summed over scored positions.

    student_BTV, teacher_BTV: floating logits [B, T, V]; labels_BT: integers [B, T]. Sum and count are returned
    undivided. The sum is differentiable with respect to the student only; the teacher is detached.
    Domain, dtypes and errors: see the module's docstring. Source: arXiv:1503.02531, section 2.
    """
    _check_settings(temperature, ce_weight, kd_weight, ignore_index)
    rows = _scored_rows(student_BTV, teacher_BTV, labels_BT, ignore_index)
    nats_N = rows.student_NV[:, :0].sum(-1, dtype=torch.float64)  # an empty sum: 0, but part of the graph
    if ce_weight > 0:
        ce_N = _cross_entropy(rows.student_NV, rows.labels_N)
        nats_N = nats_N + ce_weight * ce_N
    if kd_weight > 0:
        kl_N = forward_kl(rows.student_NV, rows.teacher_NV, temperature)
        nats_N = nats_N + kd_weight * (temperature**2 * kl_N)
    return LossSum(sum=nats_N.sum(), count=rows.scored_BT.sum())


def kd_logit_gradient(
    student_BTV: Tensor,
    teacher_BTV: Tensor,
    labels_BT: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    """Return the derivative of `kd_loss(...).sum` with respect to the student's logits, in closed form.

    ce_weight * (softmax(s) - onehot(y)) + kd_weight * tau * (softmax(s/tau) - softmax(t/tau)) at scored positions,
    exactly 0 elsewhere. Shape [B, T, V]; float64 for a float64 student, otherwise float32; always finite; in nats per
    logit, of the sum: the caller divides. Domain and errors: as for `kd_loss`.
    Source: arXiv:1503.02531, section 2, equation 2.
    """
    _check_settings(temperature, ce_weight, kd_weight, ignore_index)
    rows = _scored_rows(student_BTV, teacher_BTV, labels_BT, ignore_index)
    student_NV, teacher_NV = rows.student_NV.detach(), rows.teacher_NV
    excess_NV = student_NV.softmax(-1)
    excess_NV[torch.arange(len(excess_NV), device=excess_NV.device), rows.labels_N] -= 1
    soft_excess_NV = (student_NV / temperature).softmax(-1) - (teacher_NV / temperature).softmax(-1)
    gradient_NV = ce_weight * excess_NV + kd_weight * (temperature * soft_excess_NV)
    gradient_BTV = torch.zeros_like(student_BTV, dtype=_at_least_float32(student_BTV), requires_grad=False)
    gradient_BTV[rows.scored_BT] = gradient_NV.to(gradient_BTV.dtype)
    return gradient_BTV


def forward_kl(student_NV: Tensor, teacher_NV: Tensor, temperature: float) -> Tensor:
    """Return KL(softmax(t/tau) || softmax(s/tau)) of each row in nats, without the factor tau^2: float64 [N].

    student_NV, teacher_NV: floating logits [N, V]; the teacher is detached. A teacher logit of -inf gives no term; a
    student logit of -inf where the teacher's probability is positive gives +inf.
    """
    log_p_NV = (teacher_NV.detach() / temperature).log_softmax(-1)
    log_q_NV = (student_NV / temperature).log_softmax(-1)
    # A probability that underflows is still positive: 0 * inf would be NaN where the loss is +inf.
    p_NV = log_p_NV.exp().clamp_min(torch.finfo(log_p_NV.dtype).tiny)
    term_NV = torch.where(log_p_NV > -math.inf, p_NV * (log_p_NV - log_q_NV), 0.0)
    return term_NV.sum(-1, dtype=torch.float64)


def _cross_entropy(student_NV: Tensor, labels_N: Tensor) -> Tensor:
    return -student_NV.log_softmax(-1).gather(-1, labels_N[:, None])[:, 0].double()


def _scored_rows(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor, ignore_index: int) -> _ScoredRows:
    _check_tensors(student_BTV, teacher_BTV, labels_BT)
    labels_BT = labels_BT.long()
    scored_BT = labels_BT != ignore_index
    _check_labels(labels_BT, scored_BT, student_BTV.shape[-1])
    dtype = torch.promote_types(_at_least_float32(student_BTV), _at_least_float32(teacher_BTV))
    student_NV = _rows_with_maximum_zero("student", student_BTV, scored_BT, dtype)
    teacher_NV = _rows_with_maximum_zero("teacher", teacher_BTV.detach(), scored_BT, dtype)
    return _ScoredRows(student_NV, teacher_NV, labels_BT[scored_BT], scored_BT)


def _rows_with_maximum_zero(model: str, logits_BTV: Tensor, scored_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the scored rows [N, V], selected before any arithmetic so that unscored rows cannot have influence."""
    logits_NV = logits_BTV[scored_BT].to(dtype)
    maximum_N1 = logits_NV.detach().amax(-1, keepdim=True)  # finite exactly if the row has a softmax distribution
    broken_N = ~maximum_N1[:, 0].isfinite()
    if broken_N.any():
        row = int(broken_N.nonzero()[0])
        b, t = scored_BT.nonzero()[row]
        raise LogitsError(
            f"invalid {model} logits at scored position ({b}, {t}): maximum {maximum_N1[row].item()}, expected a "
            f"finite number; probably the {model} diverged or the whole vocabulary is masked (ignore_index leaves a "
            f"position unscored)"
        )
    return logits_NV - maximum_N1  # large logits would overflow when divided by a small temperature


def _at_least_float32(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


def _check_settings(temperature: float, ce_weight: float, kd_weight: float, ignore_index: int) -> None:
    low, high = TEMPERATURES
    if not (_is_number(temperature) and low <= temperature <= high):
        raise SettingError(
            f"invalid value {temperature!r} for 'temperature': expected a number from {low:g} to {high:g} (usually 1 "
            f"to 4)"
        )
    for name, weight in (("ce_weight", ce_weight), ("kd_weight", kd_weight)):
        if not (_is_number(weight) and 0 <= weight < math.inf):
            raise SettingError(f"invalid value {weight!r} for '{name}': expected a finite number >= 0")

    if not isinstance(ignore_index, int) or isinstance(ignore_index, bool):
        raise SettingError(
            f"invalid value {ignore_index!r} for 'ignore_index': expected an integer, usually {IGNORE_INDEX}"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_tensors(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor) -> None:
    _check_logits("student", student_BTV)
    _check_logits("teacher", teacher_BTV)
    student_vocabulary, teacher_vocabulary = student_BTV.shape[-1], teacher_BTV.shape[-1]
    if student_vocabulary != teacher_vocabulary:
        raise VocabularyError(
            f"different vocabulary sizes: student {student_vocabulary}, teacher {teacher_vocabulary}; probably the "
            f"tokenizers differ or one output layer is padded (remove padding columns before the loss)"
        )
    if not isinstance(labels_BT, Tensor) or labels_BT.is_floating_point() or labels_BT.dtype is torch.bool:
        raise ShapeError(f"invalid labels: {_describe(labels_BT)}, expected an integer tensor [B, T]")
    if not student_BTV.shape[:2] == teacher_BTV.shape[:2] == labels_BT.shape:
        raise ShapeError(
            f"shapes do not match: student {list(student_BTV.shape)}, teacher {list(teacher_BTV.shape)}, labels "
            f"{list(labels_BT.shape)}; expected [B, T, V], [B, T, V] and [B, T]"
        )
    if not student_BTV.device == teacher_BTV.device == labels_BT.device:
        devices = f"{student_BTV.device}, {teacher_BTV.device}, {labels_BT.device}"
        raise ShapeError(f"different devices for student, teacher and labels: {devices}; expected one device")


def _check_logits(model: str, logits_BTV: Tensor) -> None:
    if not isinstance(logits_BTV, Tensor) or not logits_BTV.is_floating_point():
        raise ShapeError(f"invalid {model} logits: {_describe(logits_BTV)}, expected a floating tensor [B, T, V]")
    if logits_BTV.dim() != 3 or logits_BTV.shape[-1] == 0:
        raise ShapeError(f"invalid {model} logits: shape {list(logits_BTV.shape)}, expected [B, T, V] with V >= 1")


def _describe(value: object) -> str:
    return f"{value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__


def _check_labels(labels_BT: Tensor, scored_BT: Tensor, vocabulary: int) -> None:
    outside_BT = scored_BT & ((labels_BT < 0) | (labels_BT >= vocabulary))
    if outside_BT.any():
        b, t = outside_BT.nonzero()[0]
        raise LabelError(
            f"label {int(labels_BT[b, t])} at position ({b}, {t}) is outside the vocabulary of {vocabulary} tokens; "
            f"probably the tokenizers differ or padding is not labelled with ignore_index"
        )
