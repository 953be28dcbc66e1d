"""Recording students and teachers, one-step helpers, and comparison of a step with the float64 oracles."""

from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support import oracles
from falsifiers.support.cases import StepCase

STEP = "table[token] - learning_rate · oracle gradient of the mean over scored tokens"
USUAL = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
ZEROS = torch.zeros(2, 2, dtype=torch.float64)
SHIFTED = "logits at i against the label at i + 1, divided by the scored tokens"


class RecordingPass:
    """A pass that records the gradients it is given."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.gradients: list[Tensor] = []

    def backward(self, logit_gradient: Tensor) -> None:
        self.gradients.append(logit_gradient)


class RecordingStudent:
    """A student that records its passes; its logits come from a table, or are always `logits`."""

    def __init__(self, table: Tensor, logits: Any = None) -> None:
        self.table, self.vocab_size, self.fixed = table, table.shape[1], logits
        self.passes: list[RecordingPass] = []

    def forward(self, batch: Any) -> RecordingPass:
        self.passes.append(RecordingPass(self.table[batch.tokens.long()] if self.fixed is None else self.fixed))
        return self.passes[-1]


class AnsweringTeacher:
    """A teacher whose `logits` always returns `answer`."""

    def __init__(self, vocab_size: int, answer: Any) -> None:
        self.vocab_size, self.answer = vocab_size, answer

    def logits(self, batch: Any) -> Any:
        return self.answer


def embedding(table: Tensor, device: str = "cpu") -> nn.Embedding:
    """Return a module that maps token k to row k of a copy of the table [K, V]."""
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table.clone().to(device))


def batch_of(subject: Any, case: StepCase, device: str = "cpu") -> Any:
    """Return the case's tokens and labels as the subject's `Batch`."""
    return subject.Batch(tokens=case.tokens.to(device), labels=case.labels.to(device))


def recorded_step(subject: Any, case: StepCase, device: str = "cpu") -> tuple[Any, Tensor]:
    """Return the step's result and the gradient [B, T, V] it passed to the student; assert that there is one."""
    student = RecordingStudent(case.student.to(device))
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    gradients = [gradient for done in student.passes for gradient in done.gradients]
    assert len(student.passes) == len(gradients) == 1, f"{len(student.passes)} forwards, {len(gradients)} gradients"
    expected = [*case.tokens.shape, case.student.shape[1]]
    assert list(gradients[0].shape) == expected, f"the gradient is {list(gradients[0].shape)}; expected {expected}"
    return result, gradients[0].cpu()


def table_step(subject: Any, case: StepCase, learning_rate: float, device: str = "cpu") -> tuple[Any, Tensor]:
    """Return the step's result and the student's table [K, V] after it."""
    student = subject.FixtureStudent(case.student.to(device), learning_rate)
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    return result, student.logits_table.cpu()


def assert_result_is_the_oracles(result: Any, case: StepCase, unit: float = 2.0**-53) -> None:
    """Assert that count, sum and loss equal the oracle's and are Python numbers; `unit` is the unit roundoff."""
    shifted = case.shifted()
    nats, count, allowed = shifted.oracle_nats(), int(shifted.scored.sum()), shifted.allowed_nats(unit)
    assert result.count == count, f"count is {result.count}; expected {count}, the scored tokens after the first"
    oracles.assert_close("sum in nats", result.sum, nats, allowed, SHIFTED)
    assert result.loss is not None, f"the loss is None; expected a number for {count} scored tokens"
    oracles.assert_close("loss in nats per token", result.loss, nats / count, allowed / count, SHIFTED)
    # A tensor would keep memory of its device and its graph for as long as the result is kept.
    kinds = {name: (type(each.sum), type(each.count)) for name, each in {"step": result, **result.metrics}.items()}
    assert type(result.loss) is float and all(kind == (float, int) for kind in kinds.values()), (
        f"the loss is a {type(result.loss).__name__}, types of sums and counts are {kinds}; expected float and int"
    )


def allowed_table(case: StepCase, learning_rate: float, unit: float = 2.0**-53) -> float:
    """Return the largest rounding error of a table row: each token may add its error to one row, which rounds again."""
    tokens = case.tokens.numel()
    largest = float(case.student.abs().max()) + learning_rate * tokens * (
        case.ce_weight + case.kd_weight * case.temperature
    )
    return learning_rate * tokens * case.shifted().allowed_gradient(unit) + 2 * tokens * unit * largest


def assert_step_refused(
    subject: Any, what: str, teacher: Any, student: RecordingStudent, batch: Any, settings: Any, words: tuple[str, ...]
) -> None:
    """Assert that the step raises a ValueError with these words, and that the student gets no gradient before."""
    oracles.assert_refused(what, lambda: subject.kd_step(teacher, student, batch, **settings), *words)
    got = any(done.gradients for done in student.passes)
    assert not got, f"{what}: the student got a gradient before the refusal"
