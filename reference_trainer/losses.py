"""Knowledge-distillation loss over logits, and its gradient in closed form.

    L = sum over scored rows of  ce_weight * CE(s, y)  +  kd_weight * tau^2 * KL(softmax(t/tau) || softmax(s/tau))

s: student logits, t: teacher logits, y: label, tau: temperature. Natural logarithms, so everything is in nats.
Source: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2 (there the factor tau^2 keeps the two gradients of one
size as tau grows; one of the two taus is spent on the chain rule, so the gradient carries tau).

The domain, the same for loss and gradient:

* `labels_BT[b, i]` is the target of `student_BTV[b, i]`; nothing is shifted here. A label equal to `ignore_index`
  leaves its position unscored: whatever the logits are there, NaN included, nothing depends on them.
* Teacher -inf: no KL term for that token. Student and teacher -inf: none either. Student -inf where the teacher has
  mass, or at the label: the loss is +inf, the gradient is finite.
* A term of weight 0 is absent, not multiplied by 0, so its infinities are absent too.
* Nothing scored, or B = 0 or T = 0: sum 0, count 0, gradient all zeros; the sum can still be differentiated.
* NaN, +inf or -inf throughout at a scored position, of either model and whatever the weights: `LogitsError`.
* A label outside the vocabulary: `LabelError`. Different vocabularies: `VocabularyError`. Other shapes, dtypes or
  devices that don't belong together: `ShapeError`. A temperature outside `TEMPERATURES`, a weight that is negative or
  not finite, an `ignore_index` that is no integer: `SettingError`. All are `ValueError`s. Weights are claimed up to
  1e30, where float32 still holds them.

float16 and bfloat16 are computed in float32, float32 in float32, float64 in float64, the wider of the two models; the
weights, and sums over tokens and positions, are in float64. Accuracy is claimed for temperatures from 0.25 to 20;
elsewhere in `TEMPERATURES` only that nothing overflows.

Results depend on the arguments alone: not on autocast, grad mode, default dtype or device, the arguments' memory layout
or earlier calls, and nothing is drawn from a generator. They are the caller's: ordinary tensors (under inference mode,
inference tensors) in memory of their own, which may be changed in place.

Shape letters: B batch, T position, V vocabulary, N scored positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_trainer.domain import IGNORE_INDEX, TEMPERATURES
from reference_trainer.errors import LabelError, LogitsError, SettingError, ShapeError, VocabularyError

__all__ = ["IGNORE_INDEX", "TEMPERATURES", "LossSum", "forward_kl", "kd_logit_gradient", "kd_loss"]


@dataclass(frozen=True, slots=True)
class LossSum:
    """A loss that isn't divided yet.

    sum: nats over the scored positions, a float64 scalar, differentiable with respect to the student's logits.
    count: how many positions were scored, an int64 scalar on the same device.
    """

    sum: Tensor
    count: Tensor


@dataclass(frozen=True, slots=True)
class _ScoredRows:
    """The rows that count, in the dtype of the computation, each row's largest logit moved to 0."""

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
    """ce_weight * cross-entropy + kd_weight * temperature^2 * KL(teacher || student), summed over scored positions.

    student_BTV, teacher_BTV: floating logits [B, T, V]; labels_BT: integers [B, T]. Result in nats and positions, both
    undivided. Differentiable with respect to the student only: a teacher that asks for a gradient gets none.
    Domain, dtypes and errors: the module's docstring. Source: arXiv:1503.02531, section 2.
    """
    _check_settings(temperature, ce_weight, kd_weight, ignore_index)
    rows = _scored_rows(student_BTV, teacher_BTV, labels_BT, ignore_index)
    nats_N = rows.student_NV[:, :0].sum(-1, dtype=torch.float64)  # an empty sum: zero, and yet part of the graph
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
    """The derivative of `kd_loss(...).sum` with respect to the student's logits, in closed form.

    ce_weight * (softmax(s) - onehot(y)) + kd_weight * tau * (softmax(s/tau) - softmax(t/tau)) on scored positions,
    exactly 0 elsewhere. Shape [B, T, V]; float64 for a float64 student, float32 for every other; always finite; in nats
    per logit, of the sum: the caller divides. Domain and errors as for `kd_loss`.
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
    """KL(softmax(t/tau) || softmax(s/tau)) of each row, in nats, without the factor tau^2: float64 [N].

    Terms without teacher mass are absent; student -inf where the teacher has mass gives +inf.
    """
    log_p_NV = (teacher_NV.detach() / temperature).log_softmax(-1)
    log_q_NV = (student_NV / temperature).log_softmax(-1)
    # Mass that underflows is still mass: 0 * inf would be NaN where the loss is +inf.
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
    """The scored rows, picked before any arithmetic, so that no other row can enter value or derivative."""
    logits_NV = logits_BTV[scored_BT].to(dtype)
    maximum_N1 = logits_NV.detach().amax(-1, keepdim=True)  # finite exactly if the row is a distribution
    broken_N = ~maximum_N1[:, 0].isfinite()
    if broken_N.any():
        row = int(broken_N.nonzero()[0])
        b, t = scored_BT.nonzero()[row]
        raise LogitsError(
            f"the {model}'s logits at scored position ({b}, {t}) have the maximum {maximum_N1[row].item()}: NaN, "
            f"+inf, or -inf throughout is no distribution; look for a diverged {model} or a mask over the whole "
            f"vocabulary, or set the label there to the ignored one"
        )
    return logits_NV - maximum_N1  # divided by a small temperature, large logits would overflow


def _at_least_float32(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


def _check_settings(temperature: float, ce_weight: float, kd_weight: float, ignore_index: int) -> None:
    low, high = TEMPERATURES
    if not (_is_number(temperature) and low <= temperature <= high):
        raise SettingError(
            f"temperature is {temperature!r}; expected a number from {low:g} to {high:g}; 1 to 4 is usual"
        )
    for name, weight in (("ce_weight", ce_weight), ("kd_weight", kd_weight)):
        if not (_is_number(weight) and 0 <= weight < math.inf):
            raise SettingError(f"{name} is {weight!r}; expected a finite number >= 0")

    if not isinstance(ignore_index, int) or isinstance(ignore_index, bool):
        raise SettingError(f"ignore_index is {ignore_index!r}; expected an integer, usually {IGNORE_INDEX}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_tensors(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor) -> None:
    _check_logits("student", student_BTV)
    _check_logits("teacher", teacher_BTV)
    student_vocabulary, teacher_vocabulary = student_BTV.shape[-1], teacher_BTV.shape[-1]
    if student_vocabulary != teacher_vocabulary:
        raise VocabularyError(
            f"the student scores a vocabulary of {student_vocabulary}, the teacher one of {teacher_vocabulary}; "
            f"probably two tokenizers, or one model's output layer is padded: cut the padding off before the loss"
        )
    if not isinstance(labels_BT, Tensor) or labels_BT.is_floating_point() or labels_BT.dtype is torch.bool:
        raise ShapeError(f"labels are {_describe(labels_BT)}; expected a tensor of integers")
    if not student_BTV.shape[:2] == teacher_BTV.shape[:2] == labels_BT.shape:
        raise ShapeError(
            f"student {list(student_BTV.shape)}, teacher {list(teacher_BTV.shape)} and labels "
            f"{list(labels_BT.shape)} don't align; expected [B, T, V], [B, T, V] and [B, T]"
        )
    if not student_BTV.device == teacher_BTV.device == labels_BT.device:
        devices = f"{student_BTV.device}, {teacher_BTV.device}, {labels_BT.device}"
        raise ShapeError(f"student, teacher and labels are on {devices}; expected one device: move them there first")


def _check_logits(model: str, logits_BTV: Tensor) -> None:
    if not isinstance(logits_BTV, Tensor) or not logits_BTV.is_floating_point():
        raise ShapeError(f"the {model}'s logits are {_describe(logits_BTV)}; expected a floating tensor [B, T, V]")
    if logits_BTV.dim() != 3 or logits_BTV.shape[-1] == 0:
        raise ShapeError(f"the {model}'s logits have shape {list(logits_BTV.shape)}; expected [B, T, V] with V >= 1")


def _describe(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"


def _check_labels(labels_BT: Tensor, scored_BT: Tensor, vocabulary: int) -> None:
    outside_BT = scored_BT & ((labels_BT < 0) | (labels_BT >= vocabulary))
    if outside_BT.any():
        b, t = outside_BT.nonzero()[0]
        raise LabelError(
            f"label {int(labels_BT[b, t])} at position ({b}, {t}) is outside the vocabulary of {vocabulary}; "
            f"probably another tokenizer made the labels, or padding isn't marked with the ignored label"
        )
