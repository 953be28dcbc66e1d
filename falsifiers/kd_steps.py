"""Distillation steps to look at: students and teachers that stand in, and what a step is compared with."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from falsifiers import oracles
from falsifiers.strategies import StepCase

STEP = "table[token] - learning_rate · oracle gradient of the mean over scored tokens"
SHIFTED = "logits at i against the label at i + 1, divided by the scored tokens"


class RecordingPass:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.gradients: list[Tensor] = []

    def backward(self, logit_gradient: Tensor) -> None:
        self.gradients.append(logit_gradient)


class RecordingStudent:
    """A student that only writes down what is done to it. It answers from a table, or always with the same logits."""

    def __init__(self, table: Tensor, logits: Any = None) -> None:
        self.table, self.vocab_size, self.fixed = table, table.shape[1], logits
        self.passes: list[RecordingPass] = []

    def forward(self, batch: Any) -> RecordingPass:
        self.passes.append(RecordingPass(self.table[batch.tokens.long()] if self.fixed is None else self.fixed))
        return self.passes[-1]


class AnsweringTeacher:
    """A teacher that answers with whatever it was given."""

    def __init__(self, vocab_size: int, answer: Any) -> None:
        self.vocab_size, self.answer = vocab_size, answer

    def logits(self, batch: Any) -> Any:
        return self.answer


def embedding(table: Tensor, device: str = "cpu") -> nn.Embedding:
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table.clone().to(device))


def batch_of(subject: Any, case: StepCase, device: str = "cpu") -> Any:
    return subject.Batch(tokens=case.tokens.to(device), labels=case.labels.to(device))


def recorded_step(subject: Any, case: StepCase, device: str = "cpu") -> tuple[Any, Tensor]:
    """The step's result, and the one gradient that it handed to the student."""
    student = RecordingStudent(case.student.to(device))
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    gradients = [gradient for done in student.passes for gradient in done.gradients]
    assert len(student.passes) == len(gradients) == 1, (
        f"one step ran {len(student.passes)} student forwards and handed over {len(gradients)} gradients; expected 1 "
        "and 1"
    )
    expected = [*case.tokens.shape, case.student.shape[1]]
    assert list(gradients[0].shape) == expected, (
        f"the gradient has shape {list(gradients[0].shape)}; expected {expected}"
    )
    return result, gradients[0].cpu()


def table_step(subject: Any, case: StepCase, learning_rate: float, device: str = "cpu") -> tuple[Any, Tensor]:
    """The step's result, and the student's table after it."""
    student = subject.FixtureStudent(case.student.to(device), learning_rate)
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    return result, student.logits_table.cpu()


def assert_result_is_the_oracles(result: Any, case: StepCase, unit: float = 2.0**-53) -> None:
    shifted = case.shifted()
    nats, count, allowed = shifted.oracle_nats(), int(shifted.scored.sum()), shifted.allowed_nats(unit)
    assert result.count == count, f"count is {result.count}; {count} tokens after the first are scored"
    oracles.assert_close("sum in nats", result.sum, nats, allowed, SHIFTED)
    assert result.loss is not None, f"the loss is absent; {count} tokens are scored"
    oracles.assert_close("loss in nats per token", result.loss, nats / count, allowed / count, SHIFTED)
    # A tensor would keep its device busy and its graph alive for as long as somebody keeps the metrics.
    kinds = {name: (type(metric.sum), type(metric.count)) for name, metric in result.metrics.items()}
    assert all(kind == (float, int) for kind in kinds.values()), f"metrics are of {kinds}; expected float and int"


def allowed_table(case: StepCase, learning_rate: float, unit: float = 2.0**-53) -> float:
    """Every token of the batch may add its error to one row; the row itself rounds once for each."""
    tokens = case.tokens.numel()
    largest = float(case.student.abs().max()) + learning_rate * tokens * (
        case.ce_weight + case.kd_weight * case.temperature
    )
    return learning_rate * tokens * case.shifted().allowed_gradient(unit) + 2 * tokens * unit * largest
