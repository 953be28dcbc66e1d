"""One distillation step: both forwards, the loss, and the student's gradient.

Shape letters: B batch, T position, U = T - 1 positions with a next token, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_trainer.distillation.losses import kd_logit_gradient, kd_loss
from reference_trainer.distillation.protocols import Batch, Student, Teacher, checked_logits
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
    student_BUV, teacher_BUV, labels_BU = _shifted(student_BTV, teacher_BTV, batch.labels)
    loss = kd_loss(
        student_BUV, teacher_BUV, labels_BU, temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight
    )
    gradient_BUV = kd_logit_gradient(
        student_BUV, teacher_BUV, labels_BU, temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight
    )
    metrics = _metrics(student_BUV, teacher_BUV, labels_BU, temperature)
    count = int(loss.count)
    forward_pass.backward(_full_shape(gradient_BUV / max(count, 1), student_BTV))
    return StepResult(loss.sum.item() / count if count else None, loss.sum.item(), count, metrics)


def _shifted(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits [B, U, V] and the labels [B, U] that they predict, all on the student's device."""
    device = student_BTV.device
    return student_BTV[:, :-1], teacher_BTV[:, :-1].to(device), labels_BT[:, 1:].to(device)


def _full_shape(gradient_BUV: Tensor, student_BTV: Tensor) -> Tensor:
    gradient_BTV = torch.zeros_like(student_BTV, dtype=gradient_BUV.dtype)
    gradient_BTV[:, : gradient_BUV.shape[1]] = gradient_BUV
    return gradient_BTV


def _metrics(student_BUV: Tensor, teacher_BUV: Tensor, labels_BU: Tensor, temperature: float) -> dict[str, MetricSum]:
    weights = {"cross_entropy": (1.0, 0.0), "kl": (0.0, 1.0 / temperature**2)}
    metrics = {}
    for name, (ce_weight, kd_weight) in weights.items():
        term = kd_loss(
            student_BUV, teacher_BUV, labels_BU, temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight
        )
        metrics[name] = MetricSum(term.sum.item(), int(term.count))
    return {name: metric for name, metric in metrics.items() if metric.count}
