"""Compute the gradient of a window: the micro-batches of all ranks that make up one optimizer step.

The scored tokens of the whole window are counted first, over micro-batches and ranks; then the gradient of every
micro-batch is divided by this count. The gradient therefore does not depend on padding or on the division of the
sequences into ranks and micro-batches. The mean of the means of micro-batches would depend on both.
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
from reference_trainer.distillation.protocols import Batch, Student
from reference_trainer.distillation.step import check_vocabularies, forward_backward, labels_of_logits
from reference_trainer.distillation.universal import Frozen
from reference_trainer.errors import LabelError, LogitsError
from reference_trainer.ranks.parallel import ONE_PROCESS, Parallel


@dataclass(frozen=True, slots=True)
class WindowSums:
    """The sums of a window, as tensors on the device. Counts are int64 scalars.

    Attributes:
        sums: Float64 scalars over the scored tokens of this rank, by the names of `sums_of`.
        count: Number of scored tokens of this rank.
        total: Number of scored tokens of all ranks, the divisor of the gradient.
        sequences: Number of sequences of all ranks with a scored token.
        vocabulary: Vocabulary size of the student.
        faults: The result of `loss_fault` and the labels of every micro-batch; empty if errors are not deferred.
    """

    sums: Mapping[str, Tensor]
    count: Tensor
    total: Tensor
    sequences: Tensor
    vocabulary: int
    faults: Sequence[tuple[Tensor, Tensor]]


def kd_window(
    teacher: Frozen,
    student: Student,
    batches: Sequence[Batch],
    weights: Weights,
    *,
    parallel: Parallel = ONE_PROCESS,
    metrics: bool = False,
    run_teacher: bool = True,
    deferred: bool = False,
    features: FeatureMatching | None = None,
    before: Callable[[int], None] = lambda micro_batch: None,
    after: Callable[[int, Mapping[str, Tensor], Tensor], None] | None = None,
    flags: Sequence[bool] = (),
    is_skipped: Callable[[Tensor], bool] = lambda flags: False,
) -> WindowSums | None:
    """Accumulate the gradient of the mean loss over all scored tokens of the window; return the sums.

    1. Count the scored tokens of all micro-batches and ranks: one divisor for all gradients.
    2. For each micro-batch: forward of both models, loss, backward of the student.

    Args:
        teacher: The frozen model.
        student: The model that accumulates the gradient.
        batches: The micro-batches, at least one, and the same number on every rank. A rank without data passes batches
            without a scored label.
        weights: The arguments of the loss.
        parallel: The ranks that share the window.
        metrics: Whether to compute metrics, as in `loss_by_blocks`.
        run_teacher: Whether to run the teacher. If not, all weights except ce_weight must be 0, and metrics of the
            teacher are not computed.
        deferred: Whether invalid values raise only when `Pending.read` reads them, as in `loss_by_blocks`.
        features: The hidden states to match, as in `forward_backward`.
        before: Called with the number of a micro-batch, from 0, before its forward.
        after: Called with the number, the sums and the count of scored tokens of a micro-batch, after its backward.
        flags: Flags of this rank. They are summed over ranks together with the counts.
        is_skipped: Called with the summed flags before the first forward; returns whether to skip the window.

    Returns:
        The sums; None if the window is skipped.

    Raises:
        TrainerError: As `kd_step`. The student keeps the gradients of the micro-batches before the one that failed.
        LogitsError: If the loss of a scored token is infinite. The student keeps the gradient of this micro-batch too,
            which is finite.
    """
    check_vocabularies(teacher, student)
    labels = [labels_of_logits(batch.labels) for batch in batches]
    # The tokens are counted before the first forward, so that each micro-batch divides its gradient by the final count.
    # Counts and flags are one tensor, because each reduction over ranks has a latency.
    counts_K = _counts(labels, flags)
    summed_K = parallel.sum_counts(counts_K)
    if is_skipped(summed_K[2:]):
        return None
    total, sequences = summed_K[0], summed_K[1]
    scale = parallel.gradient_factor / total.double()  # if no token is scored, this is inf and multiplies no gradient
    sums: dict[str, Tensor] = {}
    faults: list[tuple[Tensor, Tensor]] = []
    with parallel.window(teacher=run_teacher and len(batches) > 1):
        for number, batch in enumerate(batches):
            before(number)
            with parallel.micro_batch(last=number == len(batches) - 1), naming_micro_batch(number, len(batches)):
                step = forward_backward(
                    teacher if run_teacher else None,
                    student,
                    batch,
                    labels[number],
                    weights,
                    scale=scale,
                    metrics=metrics,
                    deferred=deferred,
                    features=features,
                )
                fault = loss_fault(step.rows, weights, step.sums.get("feature"))
                if not deferred:  # reading the fault waits for the device
                    raise_fault(fault, labels[number], student.vocab_size)
            faults.append((fault, labels[number]))
            if after is not None:
                after(number, step.sums, step.rows.count)
            for name, value in step.sums.items():
                sums[name] = sums[name] + value if name in sums else value
    return WindowSums(sums, counts_K[0], total, sequences, student.vocab_size, faults if deferred else ())


@contextmanager
def naming_micro_batch(number: int, count: int) -> Iterator[None]:
    """Add a note with the micro-batch to errors about labels or logits.

    Args:
        number: The number of the micro-batch, from 0.
        count: The number of micro-batches of the step; with 1, no note is added.
    """
    try:
        yield
    except (LabelError, LogitsError) as error:
        if count > 1:
            error.add_note(f"in micro-batch {number + 1} of {count}")
        raise


def is_scored(batch: Batch) -> bool:
    """Return whether the batch has a scored label, apart from the first label of a row, which no position predicts."""
    return bool((labels_of_logits(batch.labels) != IGNORE_INDEX).any())


def _counts(labels: Sequence[Tensor], flags: Sequence[bool]) -> Tensor:
    """Return int64 [K]: the number of scored tokens, the number of sequences with a scored token, and the flags."""
    scored = [labels_BT != IGNORE_INDEX for labels_BT in labels]
    tokens = torch.stack([scored_BT.sum() for scored_BT in scored]).sum()
    sequences = torch.stack([scored_BT.any(-1).sum() for scored_BT in scored]).sum()
    return torch.stack([tokens, sequences, *(torch.full_like(tokens, flag) for flag in flags)])
