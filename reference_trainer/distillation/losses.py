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
* A token whose teacher logit is -inf has no KL term, for any logit of the student. If the student's logit is -inf
  where the teacher's probability is positive, or at the label, the loss is +inf and the gradient is finite. For the
  reverse KL, exchange the two models in this rule; Jensen-Shannon is finite for 0 < beta < 1.
* A term of weight 0 is left out, not multiplied by 0, so that an infinite term of weight 0 has no effect.
* With no scored position (also B = 0 or T = 0), sum and count are 0, the gradient is all zeros, and the sum is still
  differentiable.
* Weights are supported up to 1e30, which float32 can represent.

Errors, all subclasses of `ValueError`:

* `LogitsError`: NaN, +inf, or only -inf at a scored position of either model, for all weights.
* `LabelError`: a scored label outside the vocabulary.
* `VocabularyError`: different vocabulary sizes.
* `ShapeError`: other shapes, dtypes or devices that do not match.
* `SettingError`: a temperature outside `TEMPERATURES`, a negative or non-finite weight, an unknown divergence, a beta
  outside [0, 1], a non-integer `ignore_index`.

The computation is in float32 for float16, bfloat16 and float32 logits, and in float64 for float64 logits; if the dtypes
of the models differ, in the wider one. Weighting, and sums over tokens and positions, are float64; counts are int64.
Results are accurate for temperatures from 0.25 to 20. For other temperatures within `TEMPERATURES` nothing overflows,
but the accuracy is not specified.

Results depend on the arguments alone: not on autocast, grad mode, default dtype or device, memory layout or earlier
calls; no random number is drawn. Results are ordinary tensors (inference tensors under inference mode) that share no
memory with the arguments, so that the caller may change them in place.

Loss and gradient are computed together, a block of rows at a time, so that a block is read from memory only once and
then stays in the cache.

Shape letters: B batch, T position, V vocabulary, P = B * T rows, N rows that are read (the scored rows or all rows), C
rows of a block, K numbers that are computed for a row (see `BlockwiseLoss.block`), F = 1 + 3 * P places of a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference_trainer.distillation.divergences import BY_NAME, agreement, cross_entropy, forward_kl, teacher_metrics
from reference_trainer.distillation.objective import IGNORE_INDEX, TEMPERATURES, Weights, check_ignore_index
from reference_trainer.errors import LabelError, LogitsError, ShapeError, VocabularyError

__all__ = [
    "IGNORE_INDEX",
    "TEMPERATURES",
    "BlockwiseLoss",
    "LossSum",
    "RowLosses",
    "Weights",
    "check_tensors",
    "collect_rows",
    "first_fault",
    "kd_logit_gradient",
    "kd_loss",
    "loss_by_blocks",
    "loss_fault",
    "raise_fault",
    "rows_per_block",
    "weighted_sum",
]

KINDS = 4
"""Number of kinds of a fault: 0 no fault; 1, 2 and 3 a largest logit of NaN, +inf and -inf; 1 also any other fault."""


def check_tensors(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor) -> None:
    """Raise `ShapeError` or `VocabularyError` unless these are logits and labels of one shape on one device."""
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


def first_fault(labels_BT: Tensor, scored_P: Tensor, maxima_2P: Tensor, vocabulary: int) -> Tensor:
    """Return the first fault for `raise_fault`, an int64 scalar on the device of the labels; 0 without a fault.

    Labels are checked first, then the logits of the student, then the logits of the teacher.

    Args:
        labels_BT: The labels, int64.
        scored_P: Whether a row is scored, bool.
        maxima_2P: The largest logit of every row of student and teacher. A row has a softmax distribution if and only
            if its maximum is finite.
        vocabulary: The number of tokens.
    """
    # A fault is the integer KINDS * place + kind, so that the host reads one number. Places: 0 for no fault, then P
    # labels, P rows of the student and P rows of the teacher; `loss_fault` adds more.
    labels_P = labels_BT.flatten()
    outside_P = scored_P & ((labels_P < 0) | (labels_P >= vocabulary))
    kind_2P = maxima_2P.isnan() + 2 * maxima_2P.isposinf() + 3 * maxima_2P.isneginf()
    kind_F = torch.cat([outside_P.new_zeros(1), outside_P, kind_2P.flatten()])
    first = (kind_F > 0).byte().argmax()  # argmax returns the first of equal maxima; without a fault this is place 0
    return KINDS * first + kind_F.take(first)


def raise_fault(fault: int | Tensor, labels_BT: Tensor, vocabulary: int) -> None:
    """Raise `LabelError` or `LogitsError`, with the position, for a fault of `first_fault` or `loss_fault`.

    If the fault is 0, do nothing.
    """
    fault = int(fault)
    if not fault:
        return
    place, kind = divmod(fault, KINDS)
    source, row = divmod(place - 1, labels_BT.numel())  # 0 label, 1 student, 2 teacher, 3 loss, 4 hidden states
    b, t = divmod(row, labels_BT.shape[1])
    if source == 0:
        raise LabelError(
            f"label {int(labels_BT[b, t])} at position ({b}, {t}) is outside the vocabulary of {vocabulary} tokens; "
            f"probably the tokenizers differ or padding is not labelled with ignore_index"
        )
    if source == 3:
        raise LogitsError(
            f"the loss of the student at scored position ({b}, {t}) is infinite: a token with the logit -inf is the "
            f"label, or has a probability in the other model; try divergence jensen_shannon, or finite logits"
        )
    if source == 4:
        raise LogitsError("the distance of hidden states is not finite; probably the student diverged")
    name, maximum = ("student", "teacher")[source - 1], ("nan", "inf", "-inf")[kind - 1]
    raise LogitsError(
        f"invalid {name} logits at scored position ({b}, {t}): maximum {maximum}, expected a finite number; probably "
        f"the {name} diverged or the whole vocabulary is masked (ignore_index leaves a position unscored)"
    )


CPU_BLOCK_BYTES = 2 << 20
"""Size of a block on the CPU. Five blocks are in use; together they fit into the last level of cache."""
BLOCK_BYTES = 64 << 20
"""Size of a block on other devices, where the launch of a kernel takes as long as 20 MiB of traffic."""


@dataclass(frozen=True, slots=True)
class RowLosses:
    """The loss of rows of logits, detached. Tensors of shape [P] are float64, and 0 in unscored rows.

    Attributes:
        cross_entropy_P: Cross-entropy against the labels in nats; 0 if its weight is 0 and metrics are not requested.
        divergence_P: Divergence at the temperature in nats, without the factor temperature^2; 0 if its weight is 0 and
            metrics are not requested.
        kl_at_1_P: KL(teacher || student) at temperature 1 in nats. This metric and the next four have shape [0] unless
            metrics are requested.
        kl_P: KL(teacher || student) at the temperature in nats.
        teacher_cross_entropy_P: Cross-entropy of the teacher at temperature 1 in nats.
        teacher_entropy_P: Entropy of the teacher at temperature 1 in nats.
        agreement_P: 1 if both models have the same first most probable token, else 0.
        count: Number of scored rows, int64.
        gradient_BTV: Gradient of the weighted sum, times `scale`; empty without a `scale`.
        fault: 0, or a fault for `raise_fault`, int64.
    """

    cross_entropy_P: Tensor
    divergence_P: Tensor
    kl_at_1_P: Tensor
    kl_P: Tensor
    teacher_cross_entropy_P: Tensor
    teacher_entropy_P: Tensor
    agreement_P: Tensor
    count: Tensor
    gradient_BTV: Tensor
    fault: Tensor


@torch.no_grad()
def loss_by_blocks(
    student_BTV: Tensor,
    teacher_BTV: Tensor,
    labels_BT: Tensor,
    weights: Weights,
    *,
    ignore_index: int,
    scale: float | Tensor | None = None,
    metrics: bool = False,
    deferred: bool = False,
    select: bool | None = None,
) -> RowLosses:
    """Return the loss of every scored row and, with `scale`, the gradient of `scale` times the weighted sum.

    Logits are copied if their batch and position axes cannot be flattened into a view. On other devices than the CPU,
    with `deferred` and without `select`, no value is read from the device.

    Args:
        student_BTV: Logits of the student.
        teacher_BTV: Logits of the teacher, at the same positions.
        labels_BT: The label of each row.
        weights: The arguments of the loss.
        ignore_index: The label of unscored rows.
        scale: A number, or a scalar tensor on the device of the logits; None computes no gradient.
        metrics: Whether to compute the metrics, and terms whose weight is 0.
        deferred: Whether to return the first invalid label or logit as `fault` instead of raising.
        select: Whether to read only scored rows; by default on the CPU only. On other devices a selection would wait
            for the device, so all rows are read, and results of unscored rows are replaced by 0.

    Returns:
        The rows. The gradient is a new contiguous tensor, exactly 0 at unscored positions; its dtype is float64 for a
        float64 student, otherwise float32.

    Raises:
        LogitsError, LabelError, VocabularyError, ShapeError, SettingError: As the module's docstring says.
    """
    check_ignore_index(ignore_index)
    check_tensors(student_BTV, teacher_BTV, labels_BT)
    labels_BT = labels_BT.long()  # before the comparison: in uint8, -100 would become 156, a valid label
    scored_P, vocabulary = (labels_BT != ignore_index).flatten(), student_BTV.shape[-1]
    loss = BlockwiseLoss(student_BTV, teacher_BTV, labels_BT, scored_P, weights, scale, metrics)
    numbers_KP = loss.numbers(student_BTV.device.type == "cpu" if select is None else select)
    return collect_rows(numbers_KP, labels_BT, scored_P, vocabulary, loss.gradient_BTV, deferred=deferred)


def collect_rows(
    numbers_KP: Tensor, labels_BT: Tensor, scored_P: Tensor, vocabulary: int, gradient_BTV: Tensor, *, deferred: bool
) -> RowLosses:
    """Return the rows from their numbers. Raise for the first invalid value, unless `deferred`.

    Args:
        numbers_KP: The result of `BlockwiseLoss.numbers`.
        labels_BT: The label of each row, int64.
        scored_P: Whether a row is scored, bool.
        vocabulary: The number of tokens.
        gradient_BTV: The gradient of the rows; empty if no gradient was computed.
        deferred: Whether to return the first invalid label or logit as `fault` instead of raising.
    """
    fault = first_fault(labels_BT, scored_P, numbers_KP[-2:], vocabulary)
    if not deferred and fault != 0:
        raise_fault(int(fault), labels_BT, vocabulary)
    fields = [*numbers_KP[:-2]]  # the two terms and, if requested, the five metrics
    if len(fields) == 2:
        fields += [numbers_KP.new_zeros(0)] * 5
    return RowLosses(*[*fields, scored_P.sum(), gradient_BTV, fault])


def weighted_sum(rows: RowLosses, weights: Weights) -> Tensor:
    """Return the loss in nats, summed over the scored rows. A term of weight 0 is left out, even if it is infinite."""
    return _weighted(rows, weights).sum()


def _weighted(rows: RowLosses, weights: Weights) -> Tensor:
    """Return the two weighted terms of the loss of every row, [2, P] in nats."""
    terms = (weights.ce_weight, rows.cross_entropy_P), (weights.kd_weight * weights.temperature**2, rows.divergence_P)
    return torch.stack([weight * nats_P if weight else torch.zeros_like(nats_P) for weight, nats_P in terms])


def loss_fault(rows: RowLosses, weights: Weights, feature: Tensor | None = None) -> Tensor:
    """Return the fault of the rows or, if there is none, the fault of the first row whose loss is not finite.

    feature: the distance of hidden states, which must be finite too. The result is an int64 scalar for `raise_fault` on
    the device of the rows, 0 without a fault.
    """
    infinite_P = ~_weighted(rows, weights).isfinite().all(0)
    parts = [infinite_P.new_zeros(1), infinite_P] + ([] if feature is None else [~feature.isfinite()[None]])
    first = torch.cat(parts).byte().argmax()
    # The places of `first_fault` continue: after 0, P labels and P rows of each model come P losses and the distance.
    return torch.where((rows.fault == 0) & (first > 0), KINDS * (3 * len(infinite_P) + first) + 1, rows.fault)


def rows_per_block(vocabulary: int, dtype: torch.dtype, device: torch.device) -> int:
    """Return the number of rows of logits in a block, at least 1."""
    size = CPU_BLOCK_BYTES if device.type == "cpu" else BLOCK_BYTES
    return max(size // (vocabulary * dtype.itemsize), 1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within the context, run the operations of this thread on one core of the CPU.

    Operations on a block are short, and with several threads every operation would wait for the slowest thread. If
    another process is busy, the waiting takes longer than a second core saves.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class BlockwiseLoss:
    """Compute a loss and its gradient block by block, in buffers that are allocated once.

    Args:
        student_BTV: Logits of the student.
        teacher_BTV: Logits of the teacher, at the same positions.
        labels_BT: The label of each row.
        scored_P: Whether a row is scored, bool.
        weights: The arguments of the loss.
        scale: The factor of the gradient; None computes no gradient.
        metrics: Whether to compute the metrics, and terms whose weight is 0.
        gradient_BTV: The tensor to write the gradient to, which may be the student's logits; by default a new tensor.
        cap: The soft cap with which the student's logits y = cap * tanh(x / cap) were computed, or None for y = x. The
            gradient is the derivative with respect to x.
    """

    def __init__(
        self,
        student_BTV: Tensor,
        teacher_BTV: Tensor,
        labels_BT: Tensor,
        scored_P: Tensor,
        weights: Weights,
        scale: float | Tensor | None,
        metrics: bool,
        gradient_BTV: Tensor | None = None,
        cap: float | None = None,
    ) -> None:
        (B, T, V), device = student_BTV.shape, student_BTV.device
        self.student_PV, self.teacher_PV = student_BTV.flatten(0, 1), teacher_BTV.flatten(0, 1)
        self.labels_P1 = labels_BT.flatten().clamp(0, V - 1)[:, None]  # `first_fault` reports invalid labels
        self.scored_P, self.weights, self.metrics, self.cap = scored_P, weights, metrics, cap
        # Add to a zero, because `scale` may be a number or a tensor of any dtype.
        self.scale = None if scale is None else torch.zeros((), dtype=torch.float64, device=device) + scale
        dtype = torch.promote_types(student_BTV.dtype, torch.float32)
        if gradient_BTV is None:
            gradient_BTV = torch.empty(0 if scale is None else B, T, V, dtype=dtype, device=device)
        self.gradient_BTV = gradient_BTV
        dtype = torch.promote_types(dtype, teacher_BTV.dtype)
        self.size = rows_per_block(V, dtype, device)
        self.blocks = torch.empty(5, self.size, V, dtype=dtype, device=device)

    def numbers(self, select: bool) -> Tensor:
        """Write the gradient, and return the numbers of all rows, float64 [K, P], 0 in unscored rows.

        select: whether to read only scored rows.
        """
        P, device = len(self.scored_P), self.scored_P.device
        with _one_thread() if device.type == "cpu" else nullcontext():
            places_N = self.scored_P.nonzero()[:, 0] if select else torch.arange(P, device=device)
            blocks = _blocks(places_N, self.size, is_arange=not select)
            numbers_KN = torch.cat([torch.stack(self.block(rows_C)) for rows_C in blocks], 1)
            if self.scale is not None:
                self.clear(P - len(places_N) if select else None)
            numbers_KP = numbers_KN.new_zeros(len(numbers_KN), P).index_copy_(1, places_N, numbers_KN)
            return numbers_KP.masked_fill_(~self.scored_P, 0)

    def clear(self, count: int | None) -> None:
        """Set the gradient of unscored rows to 0. count: the number of unscored rows, if known."""
        gradient_PV = self.gradient_BTV.flatten(0, 1)
        if count is None:
            gradient_PV.masked_fill_(~self.scored_P[:, None], 0)
        else:
            # Sorting by the mask puts the unscored rows first.
            gradient_PV.index_fill_(0, self.scored_P.byte().argsort()[:count], 0)

    def block(self, rows_C: slice | Tensor) -> list[Tensor]:
        """Write the gradient of a block; return the numbers of its rows, K tensors, float64 [C].

        The numbers are, in the order of `RowLosses`, the two terms and, if requested, the five metrics; then the
        largest logits of student and teacher.
        """
        # The functions of `divergences` overwrite their arguments, so the order matters: cross-entropy and metrics read
        # the unscaled logits; then the logits are divided by the temperature; then derivatives replace the logits.
        weights, labels_C1 = self.weights, self.labels_P1[rows_C]
        student_CV, teacher_CV, hard_CV, spare_CV, other_CV = self.blocks[:, : len(labels_C1)]
        max_student_C = _read(self.student_PV, rows_C, student_CV)
        max_teacher_C = _read(self.teacher_PV, rows_C, teacher_CV)
        hard_C = log_q_C = soft_C = torch.zeros_like(max_student_C)
        if weights.ce_weight or self.metrics:
            hard_C, log_q_C = cross_entropy(student_CV, labels_C1, hard_CV)
        else:
            hard_CV.zero_()
        metrics = []
        if self.metrics:
            metrics = self._metrics(student_CV, teacher_CV, labels_C1, log_q_C, spares=(spare_CV, other_CV))
        if weights.kd_weight or self.metrics:
            if weights.temperature != 1:
                student_CV.div_(weights.temperature)
                teacher_CV.div_(weights.temperature)
            soft_C = BY_NAME[weights.divergence](student_CV, teacher_CV, spare_CV, weights.beta)
        else:
            student_CV.zero_()
        if self.scale is not None:
            self._write(rows_C, student_CV, hard_CV, self.scale)
        if self.metrics and weights.divergence == "forward_kl":
            metrics[1] = soft_C  # kl_P is the divergence
        return [hard_C, soft_C, *metrics, max_student_C, max_teacher_C]

    def _metrics(
        self,
        student_CV: Tensor,
        teacher_CV: Tensor,
        labels_C1: Tensor,
        log_q_C: Tensor,
        *,
        spares: tuple[Tensor, Tensor],
    ) -> list[Tensor]:
        """Return the five metrics. For the forward KL the second, kl_P, is 0; `block` then copies the divergence."""
        kl_at_1_C, hard_C, entropy_C = teacher_metrics(student_CV, teacher_CV, labels_C1, log_q_C, *spares)
        spare_CV, _ = spares
        agreement_C = agreement(student_CV, teacher_CV, spare_CV)
        kl_C = torch.zeros_like(kl_at_1_C)
        if self.weights.divergence != "forward_kl":
            student_CV, teacher_CV = student_CV / self.weights.temperature, teacher_CV / self.weights.temperature
            kl_C = forward_kl(student_CV, teacher_CV, spare_CV)
        return [kl_at_1_C, kl_C, hard_C, entropy_C, agreement_C]

    def _write(self, rows_C: slice | Tensor, soft_CV: Tensor, hard_CV: Tensor, scale: Tensor) -> None:
        """Write the weighted sum of the two derivatives to the rows `rows_C` of the gradient."""
        weights, gradient_PV = self.weights, self.gradient_BTV.flatten(0, 1)
        soft_CV.mul_(scale * weights.kd_weight * weights.temperature)
        if isinstance(rows_C, slice) and self.cap is None:
            torch.addcmul(soft_CV, hard_CV, scale * weights.ce_weight, out=gradient_PV[rows_C])
        else:
            total_CV = soft_CV.addcmul_(hard_CV, scale * weights.ce_weight)
            if self.cap is not None:  # dy/dx = 1 - (y / cap)^2; the gradient has not overwritten the logits y yet
                squares_CV = hard_CV.copy_(self.student_PV[rows_C]).div_(self.cap).square_()
                total_CV.addcmul_(total_CV, squares_CV, value=-1)
            if isinstance(rows_C, slice):
                gradient_PV[rows_C] = total_CV
            else:
                gradient_PV.index_copy_(0, rows_C, total_CV.to(gradient_PV.dtype))


def _blocks(places_N: Tensor, size: int, *, is_arange: bool) -> Iterator[slice | Tensor]:
    """Yield the rows of each block: a slice if they are adjacent, so that they can be read and written in place.

    is_arange: whether `places_N` is 0, 1, ..., so that no value is read from the device.
    """
    places = range(len(places_N)) if is_arange else places_N.tolist()  # one read, because it waits for the device
    start = 0
    for places_C in torch.split(places_N, size):  # if there are no rows, one empty block
        block = places[start : start + len(places_C)]
        start += len(places_C)
        is_adjacent = len(block) > 0 and block[-1] - block[0] < len(block)  # the places are sorted
        yield slice(block[0], block[-1] + 1) if is_adjacent else places_C


def _read(logits_PV: Tensor, rows_C: slice | Tensor, out_CV: Tensor) -> Tensor:
    """Copy rows to `out_CV`, minus their maximum so that `exp` cannot overflow; return the maxima, float64 [C]."""
    rows_CV = logits_PV[rows_C] if isinstance(rows_C, slice) else logits_PV.index_select(0, rows_C)
    maximum_C1 = rows_CV.amax(-1, keepdim=True)
    torch.sub(rows_CV, maximum_C1.to(out_CV.dtype), out=out_CV)
    return maximum_C1[:, 0].double()


@dataclass(frozen=True, slots=True)
class LossSum:
    """An undivided loss.

    Attributes:
        sum: The loss summed over scored positions, a float64 scalar: of `kd_loss`, in nats and differentiable with
            respect to the student's logits; of `features.feature_loss`, see there.
        count: Exact number of scored positions, an int64 scalar on the same device.
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

    The sum is not divided. It is differentiable with respect to the student only; the teacher is detached. Domain,
    dtypes and errors: see the module's docstring. Source: arXiv:1503.02531, section 2.

    Args:
        student_BTV: Logits of the student, floating [B, T, V].
        teacher_BTV: Logits of the teacher, floating [B, T, V].
        labels_BT: The label of each position, integers [B, T]; they are not shifted here.
        temperature: The divisor of the logits of both models in the divergence.
        ce_weight: The weight of the cross-entropy.
        kd_weight: The weight of the divergence.
        divergence: One of `objective.DIVERGENCES`.
        beta: The teacher's share of the mixture, from 0 to 1, for "jensen_shannon".
        ignore_index: The label of unscored positions.
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

    For KL(teacher || student) it is, at scored positions,

        ce_weight * (softmax(s) - onehot(y)) + kd_weight * tau * (softmax(s/tau) - softmax(t/tau)),

    and exactly 0 elsewhere; for other divergences see `divergences`. The result has shape [B, T, V], is float64 for a
    float64 student, otherwise float32, and always finite. It is the gradient of the sum, in nats per logit: the caller
    divides. Domain and errors: as for `kd_loss`. Source: arXiv:1503.02531, section 2, equation 2.
    """
    weights = Weights(
        temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight, divergence=divergence, beta=beta
    )
    rows = loss_by_blocks(student_BTV, teacher_BTV, labels_BT, weights, ignore_index=ignore_index, scale=1.0)
    return rows.gradient_BTV


class _Context(Protocol):
    """The values that the forward of `_Loss` saves for its backward."""

    gradient: Tensor
    dtype: torch.dtype


class _Loss(torch.autograd.Function):
    """The weighted sum of rows; its backward returns the gradient that was computed with the rows."""

    @staticmethod
    def forward(ctx: _Context, student: Tensor, rows: RowLosses, weights: Weights) -> Tensor:
        ctx.gradient, ctx.dtype = rows.gradient_BTV, student.dtype
        return weighted_sum(rows, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_sum: Tensor) -> tuple[Tensor | None, ...]:
        return (ctx.gradient * grad_sum).to(ctx.dtype), None, None
