"""Evaluation of a student against its teacher on held-back text.

Shape letters: B batch, U positions that have a successor, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import nn

from reference_trainer.data.text import Sequences
from reference_trainer.distillation.losses import kd_loss
from reference_trainer.distillation.protocols import Teacher
from reference_trainer.distillation.providers import evaluating
from reference_trainer.distillation.step import MetricSum

__all__ = ["evaluate"]

_TERMS = {"cross_entropy": (1.0, 0.0), "kl": (0.0, 1.0)}


def evaluate(teacher: Teacher, student: nn.Module, sequences: Sequences) -> dict[str, MetricSum]:
    """Return the student's "cross_entropy" and "kl", KL(teacher || student) at temperature 1, in nats, with counts.

    Sums run over all sequences in float64, so the batch size has no influence. The student's train/eval modes are
    restored, and it gets no gradient. A term without scored tokens is absent. Raise the errors of `kd_loss`.
    """
    totals = dict.fromkeys(_TERMS, MetricSum(0.0, 0))
    order = torch.arange(len(sequences), device="cpu")
    for position in range(1, sequences.batches + 1):
        batch = sequences.batch(order, position)
        with torch.no_grad(), evaluating(student):
            student_BUV = student(batch.tokens)[:, :-1]
        teacher_BUV = teacher.logits(batch)[:, :-1].to(student_BUV.device)
        for name, (ce_weight, kd_weight) in _TERMS.items():
            term = kd_loss(
                student_BUV, teacher_BUV, batch.labels[:, 1:], temperature=1.0, ce_weight=ce_weight, kd_weight=kd_weight
            )
            totals[name] = MetricSum(totals[name].sum + term.sum.item(), totals[name].count + int(term.count))
    return {name: total for name, total in totals.items() if total.count}
