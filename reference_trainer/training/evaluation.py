"""Evaluation of a student against its teacher on held-back text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import torch

from reference_trainer.data.text import Rows
from reference_trainer.distillation.domain import IGNORE_INDEX
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch, Teacher, checked_logits
from reference_trainer.distillation.rows import walk
from reference_trainer.distillation.step import MetricSum, check_vocabularies, labels_of_logits, sums_of
from reference_trainer.training.metrics import add

__all__ = ["evaluate"]


def evaluate(teacher: Teacher, student: Teacher, sequences: Rows, weights: Weights) -> dict[str, MetricSum]:
    """Return the metrics of a step, as `sums_of` names them, over all sequences: undivided, with their counts.

    student: a model that gives its logits as a teacher does, such as `ModuleStudent`. Sums are float64, so the batch
    size has no influence. The weighted loss is left out. Without scored tokens nothing is returned. Raise
    `VocabularyError` before the first forward if the sizes differ, and the errors of `kd_step`.
    """
    check_vocabularies(teacher, student)
    order = torch.arange(len(sequences), device="cpu")
    batches = (sequences.batch(order, position) for position in range(1, sequences.batches + 1))
    none: Mapping[str, MetricSum] = {}
    totals = reduce(add, (_batch_metrics(teacher, student, batch, weights) for batch in batches), none)
    return {name: total for name, total in totals.items() if total.count}


def _batch_metrics(teacher: Teacher, student: Teacher, batch: Batch, weights: Weights) -> dict[str, MetricSum]:
    student_BTV = checked_logits("student", student.logits(batch), batch.tokens, student.vocab_size)
    teacher_BTV = checked_logits("teacher", teacher.logits(batch), batch.tokens, teacher.vocab_size)
    device = student_BTV.device
    tensors = (student_BTV, teacher_BTV.to(device), labels_of_logits(batch.labels).to(device))
    rows = walk(*tensors, weights, ignore_index=IGNORE_INDEX, metrics=True)
    sums = sums_of(rows, weights, metrics=True)
    del sums["loss"]
    numbers = torch.stack([rows.count, *sums.values()]).tolist()  # one transfer from the device
    return {name: MetricSum(numbers[place], int(numbers[0])) for place, name in enumerate(sums, start=1)}
