"""Evaluation of a student against its teacher on held-back text."""

from __future__ import annotations

import torch

from reference_trainer.data.text import Rows
from reference_trainer.distillation.domain import IGNORE_INDEX
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch, Teacher, checked_logits
from reference_trainer.distillation.rows import walk
from reference_trainer.distillation.step import MetricSum, check_vocabularies, labels_of_logits, sums_of
from reference_trainer.training.metrics import add
from reference_trainer.training.parallel import ONE_PROCESS, Parallel

__all__ = ["evaluate"]


def evaluate(
    teacher: Teacher, student: Teacher, sequences: Rows, weights: Weights, parallel: Parallel = ONE_PROCESS
) -> dict[str, MetricSum]:
    """Return the metrics of a step, as `sums_of` names them, over all sequences: undivided, with their counts.

    student: a model that gives its logits as a teacher does, such as `ModuleStudent`. Sums are float64, so the batch
    size has no influence. The weighted loss is left out. Without scored tokens nothing is returned. On several ranks
    each takes its share of the batches, and every rank returns the sums of all; every rank runs as many forwards, so
    that collectives within them are matched. Raise `VocabularyError` before the first forward if the sizes differ, and
    the errors of `kd_step`.
    """
    check_vocabularies(teacher, student)
    totals: dict[str, MetricSum] = {}
    order = torch.arange(len(sequences), device="cpu")
    for first in range(1, sequences.batches + 1, parallel.world_size):
        position = first + parallel.rank
        batch = sequences.batch(order, min(position, sequences.batches))
        metrics = _batch_metrics(teacher, student, batch, weights)
        if position > sequences.batches:  # taken by another rank
            metrics = dict.fromkeys(metrics, MetricSum(0.0, 0))
        totals = add(totals, metrics)
    return {name: total for name, total in _reduced(totals, parallel).items() if total.count}


def _reduced(totals: dict[str, MetricSum], parallel: Parallel) -> dict[str, MetricSum]:
    """Return the totals of all ranks, from one reduction. Counts are exact in float64, up to 2^53."""
    if parallel.world_size == 1 or not totals:
        return totals
    numbers = [number for total in totals.values() for number in (total.sum, float(total.count))]
    reduced = iter(parallel.sum_metrics(torch.tensor(numbers, dtype=torch.float64)).tolist())
    return {name: MetricSum(next(reduced), int(next(reduced))) for name in totals}


def _batch_metrics(teacher: Teacher, student: Teacher, batch: Batch, weights: Weights) -> dict[str, MetricSum]:
    student_BTV = checked_logits("student", student.logits(batch), batch.tokens, student.vocab_size)
    teacher_BTV = checked_logits("teacher", teacher.logits(batch), batch.tokens, teacher.vocab_size)
    device = student_BTV.device
    tensors = (student_BTV, teacher_BTV.to(device), labels_of_logits(batch.labels).to(device))
    rows = walk(*tensors, weights, ignore_index=IGNORE_INDEX, metrics=True)
    sums = sums_of(rows, weights, metrics=True)
    *numbers, count = torch.stack([*sums.values(), rows.count.double()]).tolist()  # one transfer from the device
    metrics = {name: MetricSum(number, int(count)) for name, number in zip(sums, numbers, strict=True)}
    return {name: metric for name, metric in metrics.items() if name != "loss"}
