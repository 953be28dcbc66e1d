"""One walk over the scored rows of logits [B, T, V]: nats per row, and the gradient of their weighted sum.

A block of rows is read once from memory; everything else happens in buffers that stay in the cache. Results are as
`reference_trainer.distillation.losses` documents them.

Shape letters: B batch, T position, P = B * T rows, V vocabulary, C rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_trainer.distillation import divergences
from reference_trainer.distillation.checks import check_labels, check_settings, check_tensors
from reference_trainer.distillation.divergences import RowFunction
from reference_trainer.errors import LogitsError

__all__ = ["Rows", "Weights", "walk", "weighted_sum"]

BLOCK_BYTES = 2 << 20  # of one buffer; five are in use, and together they stay in the last level of cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The objective: ce_weight * cross-entropy + kd_weight * temperature^2 * divergence, in nats per scored row."""

    temperature: float
    ce_weight: float
    kd_weight: float
    divergence: RowFunction = divergences.forward_kl


@dataclass(frozen=True, slots=True)
class Rows:
    """The results of one walk, detached.

    cross_entropy_P: nats against the labels. divergence_P: nats at the temperature, without temperature^2. Both
    float64, 0 in unscored rows, and 0 if the weight is 0 and metrics are not asked for. count: scored rows, int64.
    gradient_BTV: of the weighted sum, times `scale`; empty without a `scale`.
    """

    cross_entropy_P: Tensor
    divergence_P: Tensor
    count: Tensor
    gradient_BTV: Tensor


@torch.no_grad()
def walk(
    student_BTV: Tensor,
    teacher_BTV: Tensor,
    labels_BT: Tensor,
    weights: Weights,
    *,
    ignore_index: int,
    scale: float | Tensor | None = None,
    metrics: bool = False,
    select: bool | None = None,
) -> Rows:
    """Return nats of every scored row and, with `scale`, the gradient of `scale` times their weighted sum.

    metrics: also nats whose weight is 0. select: read scored rows only, the default on the CPU; on other devices
    selecting rows would wait for the device, so every row is read, and results of unscored rows are replaced by 0. The
    gradient is new, contiguous and exactly 0 at unscored positions; float64 for a float64 student, otherwise float32.
    Errors: see `losses`.
    """
    check_settings(weights.temperature, weights.ce_weight, weights.kd_weight, ignore_index)
    check_tensors(student_BTV, teacher_BTV, labels_BT)
    labels_BT = labels_BT.long()  # before it is compared: 156 in uint8 has the bits of -100
    scored_BT = labels_BT != ignore_index
    check_labels(labels_BT, scored_BT, student_BTV.shape[-1])
    select = student_BTV.device.type == "cpu" if select is None else select
    done = _Walk(student_BTV.detach(), teacher_BTV.detach(), labels_BT, scored_BT, weights, scale, metrics, select)
    return done.rows()


def weighted_sum(rows: Rows, weights: Weights) -> Tensor:
    """Return the loss in nats, summed over the scored rows; a term of weight 0 is absent, even if it is infinite."""
    nats_P = torch.zeros_like(rows.cross_entropy_P)
    if weights.ce_weight > 0:
        nats_P = nats_P + weights.ce_weight * rows.cross_entropy_P
    if weights.kd_weight > 0:
        nats_P = nats_P + weights.kd_weight * (weights.temperature**2 * rows.divergence_P)
    return nats_P.sum()


def rows_per_block(vocabulary: int, dtype: torch.dtype) -> int:
    """Return how many rows of logits a block of `BLOCK_BYTES` holds, at least 1."""
    return max(BLOCK_BYTES // (vocabulary * dtype.itemsize), 1)


class _Walk:
    """The tensors and settings of one walk, from which `rows` computes its results."""

    def __init__(
        self,
        student_BTV: Tensor,
        teacher_BTV: Tensor,
        labels_BT: Tensor,
        scored_BT: Tensor,
        weights: Weights,
        scale: float | Tensor | None,
        metrics: bool,
        select: bool,
    ) -> None:
        self.student, self.teacher, self.scored_P = student_BTV, teacher_BTV, scored_BT.flatten()
        self.labels_P1 = labels_BT.where(scored_BT, 0).flatten()[:, None]
        self.weights, self.scale, self.select = weights, scale, select
        self.hard, self.soft = weights.ce_weight > 0 or metrics, weights.kd_weight > 0 or metrics
        self.gradient_dtype = torch.promote_types(student_BTV.dtype, torch.float32)
        self.dtype = torch.promote_types(self.gradient_dtype, teacher_BTV.dtype)

    def rows(self) -> Rows:
        shape, device = self.student.shape, self.student.device
        nats = torch.zeros(4, len(self.scored_P), dtype=torch.float64, device=device)
        gradient_shape = (0,) if self.scale is None else shape
        gradient_BTV = torch.empty(gradient_shape, dtype=self.gradient_dtype, device=device)
        size = rows_per_block(shape[-1], self.dtype)
        buffers = torch.empty(4, size, shape[-1], dtype=self.dtype, device=device)
        for at, count in self._blocks(size):
            self._block(at, buffers[:, :count], nats, gradient_BTV)
        nats.masked_fill_(~self.scored_P, 0)
        self._check("student", nats[2])
        self._check("teacher", nats[3])
        if self.scale is not None:
            self._clear_unscored(gradient_BTV.view(-1, shape[-1]))
        return Rows(nats[0], nats[1], self.scored_P.sum(), gradient_BTV)

    def _blocks(self, size: int) -> Iterator[tuple[slice | Tensor, int]]:
        """Yield the location of the rows of each block, a slice if they are neighbours, and their number."""
        places = self.scored_P.nonzero()[:, 0] if self.select else range(len(self.scored_P))
        for low in range(0, len(places), size):
            part = places[low : low + size]
            first, count = int(part[0]), len(part)
            yield slice(first, first + count) if int(part[-1]) - first < count else part, count  # type: ignore[misc]

    def _block(self, at: slice | Tensor, buffers: Tensor, nats: Tensor, gradient_BTV: Tensor) -> None:
        """Note cross-entropy, divergence, and the largest logits of student and teacher of some rows in `nats`."""
        student_CV, teacher_CV, hard_CV, spare_CV = buffers
        nats[2, at] = _read(self.student, at, student_CV)
        nats[3, at] = _read(self.teacher, at, teacher_CV)
        if self.hard:
            nats[0, at] = divergences.cross_entropy(student_CV, self.labels_P1[at], hard_CV)
        if self.soft:
            student_CV.div_(self.weights.temperature)
            teacher_CV.div_(self.weights.temperature)
            nats[1, at] = self.weights.divergence(student_CV, teacher_CV, spare_CV)
        if self.scale is not None:
            gradient_CV = self._weighted(student_CV, hard_CV, self.scale)
            gradient_BTV.view(-1, gradient_BTV.shape[-1])[at] = gradient_CV.to(gradient_BTV.dtype)

    def _weighted(self, soft_CV: Tensor, hard_CV: Tensor, scale: float | Tensor) -> Tensor:
        """Return the weighted sum of the two derivatives; a term of weight 0 is absent."""
        hard, soft = self.weights.ce_weight, self.weights.kd_weight * self.weights.temperature
        total_CV = torch.mul(soft_CV, soft, out=soft_CV) if soft else soft_CV.zero_()
        total_CV = total_CV.add_(hard_CV, alpha=hard) if hard else total_CV
        return total_CV.mul_(scale)

    def _clear_unscored(self, gradient_PV: Tensor) -> None:
        if self.select:
            gradient_PV[~self.scored_P] = 0
        else:
            gradient_PV.masked_fill_(~self.scored_P[:, None], 0)

    def _check(self, model: str, top_P: Tensor) -> None:
        """Raise for the first scored row whose largest logit is not finite: it has no softmax distribution."""
        broken_P = ~top_P.isfinite()
        if broken_P.any():
            row = int(broken_P.nonzero()[0])
            b, t = divmod(row, self.student.shape[1])
            raise LogitsError(
                f"invalid {model} logits at scored position ({b}, {t}): maximum {top_P[row].item()}, expected a "
                f"finite number; probably the {model} diverged or the whole vocabulary is masked (ignore_index leaves "
                f"a position unscored)"
            )


def _read(logits_BTV: Tensor, at: slice | Tensor, out_CV: Tensor) -> Tensor:
    """Read rows into `out_CV`, shifted to a maximum of 0 so that large logits do not overflow; return the maxima."""
    rows_CV = _rows(logits_BTV, at)
    top_C1 = rows_CV.amax(-1, keepdim=True).to(out_CV.dtype)
    torch.sub(rows_CV, top_C1, out=out_CV)
    return top_C1[:, 0].double()


def _rows(logits_BTV: Tensor, at: slice | Tensor) -> Tensor:
    """Return rows by their flat position, as a view where the memory layout has one."""
    B, T, V = logits_BTV.shape
    if logits_BTV.stride(0) == T * logits_BTV.stride(1):
        return logits_BTV.as_strided((B * T, V), logits_BTV.stride()[1:], logits_BTV.storage_offset())[at]
    index = torch.arange(at.start, at.stop, device=logits_BTV.device) if isinstance(at, slice) else at
    return logits_BTV[index // T, index % T]
