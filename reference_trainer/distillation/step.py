"""One distillation step: both forwards, the loss, and the student's gradient.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_trainer.distillation.domain import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch, Student, Teacher, checked_logits
from reference_trainer.distillation.rows import Rows, Weights, walk, weighted_sum
from reference_trainer.errors import VocabularyError

__all__ = ["MetricSum", "StepResult", "kd_step"]


@dataclass(frozen=True, slots=True)
class MetricSum:
    """An undivided metric: its sum, in the metric's unit, over `count` tokens."""

    sum: float
    count: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """The results of one step, measured before its gradient is applied.

    loss: nats per scored token, None if nothing is scored. sum: the undivided loss in nats. count: scored tokens.
    metrics: "cross_entropy" (student against labels) and "kl" (KL(teacher || student) at the step's temperature,
    without tau^2), both in nats; absent if nothing is scored.
    """

    loss: float | None
    sum: float
    count: int
    metrics: Mapping[str, MetricSum]


def kd_step(
    teacher: Teacher,
    student: Student,
    batch: Batch,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
) -> StepResult:
    """Run both forwards and pass the gradient of the mean loss over scored tokens to the student; return the result.

    Logits at position i are compared with the label of position i + 1; this is the only shift. The gradient is divided
    by the number of scored tokens, once. It has the full shape [B, T, V], with zeros in the last position, which
    predicts nothing, and everywhere if nothing is scored. The caller steps the student's optimizer. Teacher logits and
    labels are moved to the student's device. Loss and gradient depend on logits and labels alone, not on autocast or
    other modes of torch; labels may have any integer dtype.

    Raise `VocabularyError` before either forward if the vocabulary sizes differ, `ProviderError` for a result that is
    not logits, and the errors of `losses`. After any error the student has no gradient.
    """
    if teacher.vocab_size != student.vocab_size:
        raise VocabularyError(
            f"different vocab_size: student {student.vocab_size}, teacher {teacher.vocab_size}; probably the "
            f"tokenizers differ or one output layer is padded"
        )
    teacher_BTV = checked_logits("teacher", teacher.logits(batch), batch.tokens, teacher.vocab_size)
    forward_pass = student.forward(batch)
    student_BTV = checked_logits("student", forward_pass.logits, batch.tokens, student.vocab_size).detach()
    device = student_BTV.device
    labels_BT = _labels_of_logits(batch.labels).to(device)
    count = int((labels_BT != IGNORE_INDEX).sum())
    weights = Weights(temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight)
    rows = walk(
        student_BTV,
        teacher_BTV.to(device),
        labels_BT,
        weights,
        ignore_index=IGNORE_INDEX,
        scale=1 / max(count, 1),
        metrics=True,
    )
    forward_pass.backward(rows.gradient_BTV)
    return _result(rows, weights, count)


def _labels_of_logits(labels_BT: Tensor) -> Tensor:
    """Return, for each position, the label that its logits predict; the last position predicts nothing."""
    shifted_BT = torch.full_like(labels_BT, IGNORE_INDEX, dtype=torch.int64)
    shifted_BT[:, :-1] = labels_BT[:, 1:]
    return shifted_BT


def _result(rows: Rows, weights: Weights, count: int) -> StepResult:
    sums = torch.stack([weighted_sum(rows, weights), rows.cross_entropy_P.sum(), rows.divergence_P.sum()])
    total, cross_entropy, kl = sums.tolist()  # one transfer from the device
    if not count:
        return StepResult(loss=None, sum=total, count=count, metrics={})
    metrics = {"cross_entropy": MetricSum(cross_entropy, count), "kl": MetricSum(kl, count)}
    return StepResult(loss=total / count, sum=total, count=count, metrics=metrics)
