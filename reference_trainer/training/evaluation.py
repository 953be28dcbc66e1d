"""Evaluate a student against its teacher on held-back rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from reference_trainer.data.text import Rows
from reference_trainer.distillation.metrics import accepted_name, add, count_accepted
from reference_trainer.distillation.objective import IGNORE_INDEX, Weights
from reference_trainer.distillation.protocols import Batch, Teacher, TopKTeacher
from reference_trainer.distillation.step import MetricSum, check_vocabularies, labels_of_logits, measured_rows, sums_of
from reference_trainer.distillation.universal import AlignedTeacher, Frozen
from reference_trainer.ranks.parallel import ONE_PROCESS, Parallel

SHARES = ("agreement", "token_accuracy")
"""Names of the sums that count tokens, so that their means have no unit."""
EVALUATED_SUMS = ("hard_loss", "soft_loss", "kl_at_T", "kl_at_1", "teacher_loss", "teacher_entropy", *SHARES)
"""Names of the sums, except sums of accepted drafts, that `evaluate` returns for a teacher with all logits."""
_TOP_K_SUMS = ("hard_loss", "soft_loss", "token_accuracy")
_ALIGNED_SUMS = ("hard_loss", "universal_distance", "token_accuracy")


def evaluated_names(accept_depth: int, *, all_logits: bool = True, aligned: bool = False) -> tuple[str, ...]:
    """Return the names of the sums that `evaluate` may return.

    Args:
        accept_depth: The largest depth of `count_accepted`; 0 leaves out its metrics.
        all_logits: Whether the teacher returns all logits, not only the largest.
        aligned: Whether teacher and student have different tokenizers.
    """
    if aligned:
        return _ALIGNED_SUMS
    if not all_logits:
        return _TOP_K_SUMS
    return (*EVALUATED_SUMS, *(accepted_name(depth) for depth in range(1, accept_depth + 1)))


def evaluate(
    teacher: Frozen,
    student: Teacher,
    sequences: Rows,
    weights: Weights,
    *,
    parallel: Parallel = ONE_PROCESS,
    accept_depth: int = 0,
) -> dict[str, MetricSum]:
    """Return the sums of losses and metrics over all sequences, with their counts.

    The names are as in `sums_of`, without "loss" and with "token_accuracy", the number of tokens that the student
    predicts. Sums are float64, so that equal logits give equal sums for any batch size, up to the rounding of float64.

    Args:
        teacher: The teacher.
        student: A model with the methods of a teacher, such as `ModuleStudent`.
        sequences: The rows to evaluate.
        weights: The arguments of the loss.
        parallel: The ranks that share the batches. All ranks must call this function. They run the same number of
            forwards, and their sums are reduced at the end.
        accept_depth: The largest depth of `count_accepted`. For every depth from 1, the sum is the number of hits, and
            the count is the number of trials.

    Returns:
        Sums and counts by name. Sums with a count of 0 are left out; empty if no token is scored.

    Raises:
        VocabularyError: Before the first forward, if the vocabulary sizes differ.
        TrainerError: As `kd_step`.
    """
    check_vocabularies(teacher, student)
    totals: Mapping[str, MetricSum] = {}
    with parallel.window():
        for batch in _batches_of_rank(sequences, parallel):
            totals = add(totals, _batch_metrics(teacher, student, batch, weights, accept_depth))
    return {name: total for name, total in _sum_over_ranks(totals, parallel).items() if total.count}


def _batches_of_rank(sequences: Rows, parallel: Parallel) -> Iterator[Batch]:
    """Yield the batches of this rank. All ranks yield the same number, because their forwards communicate."""
    order = torch.arange(len(sequences), device="cpu")
    # Rank r evaluates the batches r + 1, r + 1 + world_size, ...; in the last round some ranks may have none left.
    rounds = -(-sequences.batches // parallel.world_size)
    for position in range(1 + parallel.rank, 1 + rounds * parallel.world_size, parallel.world_size):
        if position <= sequences.batches:
            yield sequences.batch(order, position)
        else:
            # One sequence whose labels are all ignored adds nothing to the sums.
            tokens_1T = sequences.batch(order, 1).tokens[:1]
            yield Batch(tokens=tokens_1T, labels=torch.full_like(tokens_1T, IGNORE_INDEX))


def _sum_over_ranks(totals: Mapping[str, MetricSum], parallel: Parallel) -> Mapping[str, MetricSum]:
    """Return the totals summed over ranks. All ranks have the same names, so they reduce tensors of the same length."""
    if not totals:  # no rank has batches
        return totals
    sums_K = torch.tensor([total.sum for total in totals.values()], dtype=torch.float64, device="cpu")
    counts_K = torch.tensor([total.count for total in totals.values()], dtype=torch.int64, device="cpu")
    sums, counts = parallel.sum_metrics(sums_K).tolist(), parallel.sum_counts(counts_K).tolist()
    return {name: MetricSum(total, count) for name, total, count in zip(totals, sums, counts, strict=True)}


def _batch_metrics(
    teacher: Frozen, student: Teacher, batch: Batch, weights: Weights, accept_depth: int
) -> dict[str, MetricSum]:
    """Return the sums of one batch, by name, without "loss" and with "token_accuracy"."""
    labels_BT = labels_of_logits(batch.labels)
    aligned = isinstance(teacher, AlignedTeacher)
    all_logits = not aligned and not isinstance(teacher, TopKTeacher)
    rows, predicted_BT = measured_rows(teacher, student, batch, labels_BT, weights)
    device = predicted_BT.device
    labels_BT = labels_BT.to(device)
    sums = sums_of(rows, weights, metrics=True, all_logits=all_logits, aligned=aligned)
    del sums["loss"]  # depends on the loss weights, which may change over the run
    sums["token_accuracy"] = (predicted_BT == labels_BT).sum()
    counts = dict.fromkeys(sums, rows.count)
    if all_logits:
        segments_BT = None if batch.segments is None else batch.segments.to(device)
        agreed_BT = rows.agreement_P.view(labels_BT.shape) > 0
        hits, trials = count_accepted(agreed_BT, labels_BT != IGNORE_INDEX, segments_BT, accept_depth)
        names = [accepted_name(depth) for depth in range(1, accept_depth + 1)]
        sums.update(zip(names, hits, strict=True))
        counts.update(zip(names, trials, strict=True))
    # One transfer from the device; float64 represents every count exactly.
    numbers = torch.stack([*sums.values(), *counts.values()]).tolist()
    pairs = zip(numbers[: len(sums)], numbers[len(sums) :], strict=True)
    return {name: MetricSum(total, int(count)) for name, (total, count) in zip(sums, pairs, strict=True)}
