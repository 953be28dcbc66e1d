"""A window: the micro-batches of all ranks whose gradients make up one optimizer step, with one divisor.

Scored tokens of the whole window are counted first, over micro-batches and ranks; then every micro-batch's gradient is
divided by that one number. So any split of the same sequences into ranks, micro-batches and paddings gives the same
gradient, which a mean of means does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.losses import loss_fault, raise_fault
from reference_trainer.distillation.objective import IGNORE_INDEX, Weights
from reference_trainer.distillation.protocols import Batch, Student, Teacher
from reference_trainer.distillation.step import check_vocabularies, forward_backward, labels_of_logits
from reference_trainer.errors import LabelError, LogitsError
from reference_trainer.ranks.parallel import ONE_PROCESS, Parallel


@dataclass(frozen=True, slots=True)
class WindowSums:
    """The sums of a window. Nothing in them has been read from the device.

    sums: float64 scalars over the scored tokens of this rank, by the names of `sums_of`. count: these tokens.
    total: scored tokens of all ranks, by which the gradient was divided. sequences: those of all ranks that have a
    scored token. Counts are int64. vocabulary: of the student. faults: of
    each micro-batch, if errors are deferred: what `loss_fault` returns and the labels.
    """

    sums: Mapping[str, Tensor]
    count: Tensor
    total: Tensor
    sequences: Tensor
    vocabulary: int
    faults: Sequence[tuple[Tensor, Tensor]]


def kd_window(
    teacher: Teacher,
    student: Student,
    batches: Sequence[Batch],
    weights: Weights,
    *,
    parallel: Parallel = ONE_PROCESS,
    metrics: bool = False,
    taught: bool = True,
    deferred: bool = False,
    features: FeatureMatching | None = None,
    before: Callable[[int], None] = lambda micro_batch: None,
    after: Callable[[int, Mapping[str, Tensor], Tensor], None] | None = None,
    flags: Sequence[bool] = (),
    leaves_out: Callable[[Tensor], bool] = lambda flags: False,
) -> WindowSums | None:
    """Accumulate the gradient of the mean loss over all scored tokens of the window; return the sums.

    1. Count the scored tokens of all micro-batches and ranks: one divisor for all gradients.
    2. For each micro-batch: forward of both models, loss, backward of the student.

    Args:
        teacher: The frozen model.
        student: The model that accumulates the gradient.
        batches: At least one; every rank has equally many, and one without work has no scored label.
        weights: The arguments of the loss.
        parallel: The ranks that share the window.
        metrics: Whether metrics are formed, as in `loss_by_blocks`.
        taught: Whether the teacher is run. Without it no weight but ce_weight is above 0, and no metric of a teacher is
            formed.
        deferred: Whether errors are raised when they are read, as in `loss_by_blocks`.
        features: Hidden states that are matched, as in `forward_backward`.
        before: Called with the number of a micro-batch, from 0, before its forward.
        after: Called with the number, the sums of the rows and their count, after the backward of a micro-batch.
        flags: Of this rank; they travel with the counts, so that all ranks know of them in the same step.
        leaves_out: Called with the flags, summed over ranks, before the first forward. Where it returns True, nothing
            is computed, and None is returned.

    Raises:
        TrainerError: As of `kd_step`. After an error in a later micro-batch the student has a part of the gradient.
        LogitsError: If the loss of a scored token is infinite. The student has its gradient, which is finite.
    """
    check_vocabularies(teacher, student)
    labels = [labels_of_logits(batch.labels) for batch in batches]
    count, counts_K = _counts(labels, flags)
    summed_K = parallel.sum_counts(counts_K)
    if leaves_out(summed_K[2:]):
        return None
    total, sequences = summed_K[0], summed_K[1]
    scale = parallel.gradient_factor / total.double()  # inf if nothing is scored: no row is multiplied
    running = teacher if taught else None
    sums: dict[str, Tensor] = {}
    faults: list[tuple[Tensor, Tensor]] = []
    with parallel.window(teacher=taught and len(batches) > 1):
        for number, batch in enumerate(batches):
            before(number)
            with parallel.micro_batch(last=number == len(batches) - 1), naming_micro_batch(number, len(batches)):
                passed = forward_backward(
                    running,
                    student,
                    batch,
                    labels[number],
                    weights,
                    scale=scale,
                    metrics=metrics,
                    deferred=deferred,
                    features=features,
                )
                fault = loss_fault(passed.rows, weights, passed.sums.get("feature"))
                if not deferred:
                    raise_fault(fault, labels[number], student.vocab_size)
            faults.append((fault, labels[number]))
            if after is not None:
                after(number, passed.sums, passed.rows.count)
            for name, summed in passed.sums.items():
                sums[name] = sums[name] + summed if name in sums else summed
    return WindowSums(sums, count, total, sequences, student.vocab_size, faults if deferred else ())


@contextmanager
def naming_micro_batch(number: int, count: int) -> Iterator[None]:
    """Add the number of the micro-batch, from 0, of `count` in the step to errors about its labels or logits."""
    try:
        yield
    except (LabelError, LogitsError) as error:
        if count > 1:
            error.add_note(f"in micro-batch {number + 1} of {count}")
        raise


def is_scored(batch: Batch) -> bool:
    """Return whether a label of the batch is predicted, by the position before it."""
    return bool((labels_of_logits(batch.labels) != IGNORE_INDEX).any())


def _counts(labels: Sequence[Tensor], flags: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """Return the scored tokens of this rank, and int64 [K]: a copy of these, its sequences that have one, its flags."""
    count = torch.stack([(labels_BT != IGNORE_INDEX).sum() for labels_BT in labels]).sum()
    sequences = torch.stack([(labels_BT != IGNORE_INDEX).any(-1).sum() for labels_BT in labels]).sum()
    return count, torch.stack([count, sequences, *(torch.full_like(count, flag) for flag in flags)])
