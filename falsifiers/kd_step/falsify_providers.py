"""Attacks on students and teachers of a run, and on logits that are not valid."""

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.cases import LOGITS, StepCase, assert_same_gradient, step_cases
from falsifiers.support.oracles import assert_refused
from falsifiers.support.steps import (
    USUAL,
    ZEROS,
    AnsweringTeacher,
    RecordingStudent,
    allowed_table,
    assert_result_is_the_oracles,
    assert_step_refused,
    batch_of,
    embedding,
)
from reference_trainer import share_vocabulary
from reference_trainer.errors import PassConsumedError, ShapeError


class NamedOutput(NamedTuple):
    loss: Tensor
    logits: Tensor


class DictOutput(dict[str, Any]):
    """A dict with attributes, such as Hugging Face's ModelOutput."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(loss=logits.sum(), logits=logits)
        self.logits = logits


OUTPUTS: dict[str, Callable[[Tensor], Any]] = {
    "a tensor": lambda logits: logits,
    "an object": lambda logits: SimpleNamespace(logits=logits),
    "a named tuple after the loss": lambda logits: NamedOutput(logits.sum(), logits),
    "a dict with attributes": DictOutput,
}


class Wrapped(nn.Module):
    """A module that wraps the logits of another in one of `OUTPUTS`."""

    def __init__(self, inner: nn.Module, output: str) -> None:
        super().__init__()
        self.inner, self.output = inner, OUTPUTS[output]

    def forward(self, tokens: Tensor) -> Any:
        return self.output(self.inner(tokens))


@given(case=step_cases(logits=LOGITS), steps=st.integers(1, 3), output=st.sampled_from(sorted(OUTPUTS)))
def falsify_module_student_accumulates(subject: Any, device: str, case: StepCase, steps: int, output: str) -> None:
    module = embedding(case.student, device)
    teacher_module = embedding(case.teacher, device)
    student = subject.ModuleStudent(Wrapped(module, output), case.student.shape[1])
    teacher = subject.ModuleTeacher(Wrapped(teacher_module, output), case.teacher.shape[1])
    for _ in range(steps):
        result = subject.kd_step(teacher, student, batch_of(subject, case), **case.settings)
        assert_result_is_the_oracles(result, case)
    assert torch.equal(module.weight.detach().cpu(), case.student), "a parameter changed"
    assert module.weight.grad is not None, "the student's parameters have no gradient"
    expected = steps * (case.student.double() - case.oracle_table(1.0))
    allowed = 2 * steps * allowed_table(case, 1.0)
    assert_same_gradient(
        ".grad of the table", module.weight.grad.cpu(), expected, allowed, f"{steps} steps' gradients added"
    )


@given(case=step_cases(), order=st.sampled_from([(0, 1), (1, 0)]))
def falsify_gradient_reaches_its_own_forward(subject: Any, case: StepCase, order: tuple[int, int]) -> None:
    size = case.student.shape
    batches = [case.but(tokens=torch.full_like(case.tokens, k)) for k in (0, 1)]
    gradients = [torch.full((*case.tokens.shape, size[1]), g, dtype=torch.float64) for g in (1.0, 10.0)]
    expected = torch.zeros_like(case.student)
    expected[0], expected[1] = case.tokens.numel() * 1.0, case.tokens.numel() * 10.0
    module = embedding(case.student)
    table = subject.FixtureStudent(case.student, 1.0)
    for student in (table, subject.ModuleStudent(module, size[1])):
        passes = [student.forward(batch_of(subject, b)) for b in batches]
        for which in order:
            passes[which].backward(gradients[which])
    assert module.weight.grad is not None, "the student's parameters have no gradient"
    for kind, seen in (("fixture", case.student - table.logits_table), ("module", module.weight.grad)):
        # Integers up to 120 minus multiples of 1/2 are exact.
        assert_same_gradient(f"the {kind} student's gradient", seen, expected, 1e-12, "each batch's own gradient")


KINDS = st.sampled_from(["fixture", "module", "module of another vocabulary"])


def _student(subject: Any, case: StepCase, kind: str) -> tuple[Any, Callable[[], Tensor]]:
    """Return a student of this kind, and a function that returns the sum of the gradients that it has applied."""
    if kind == "fixture":
        table = subject.FixtureStudent(case.student, 1.0)
        return table, lambda: case.student - table.logits_table
    module, size = embedding(case.student), case.student.shape[1]
    student = subject.ModuleStudent(module, size)
    if kind != "module":
        _, student = share_vocabulary(AnsweringTeacher(size + 1, None), student, "pad")
    return student, lambda: torch.zeros_like(case.student) if module.weight.grad is None else module.weight.grad.clone()


@given(case=step_cases(), kind=KINDS, axis=st.integers(0, 2))
def falsify_pass_takes_one_gradient_of_its_shape(subject: Any, case: StepCase, kind: str, axis: int) -> None:
    student, applied = _student(subject, case, kind)
    done = student.forward(batch_of(subject, case))
    gradient = torch.ones_like(done.logits)
    shorter = gradient.narrow(axis, 0, 1) if gradient.shape[axis] > 1 else torch.cat([gradient] * 2, axis)
    for wrong in (shorter, gradient[..., :1], gradient.flatten(0, 1), gradient.sum()):
        words = (f"has shape {list(wrong.shape)}", f"the logits {list(gradient.shape)}")
        call = functools.partial(done.backward, wrong)
        assert_refused(f"a gradient of shape {list(wrong.shape)} of a {kind}", call, *words, kind=ShapeError)
    assert not bool(applied().any()), f"a {kind} has applied a gradient of another shape"
    done.backward(gradient)
    once = applied()
    counts = torch.bincount(case.tokens.flatten(), minlength=len(once)).to(once.dtype)
    assert torch.equal(once, counts[:, None].expand_as(once)), f"a {kind} has applied {once}; expected rows of {counts}"
    again = functools.partial(done.backward, gradient)
    assert_refused(f"a second gradient of a {kind}", again, "already", kind=PassConsumedError)
    assert torch.equal(applied(), once), f"a {kind} has applied a second gradient"
    _assert_failed_backward_consumes_its_pass(subject)


class FailingBackward(torch.autograd.Function):
    """The identity, whose backward raises."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("the backward fails on purpose")


def _assert_failed_backward_consumes_its_pass(subject: Any) -> None:
    """Assert that a pass takes no gradient after one that raised, of which a part may have been applied."""
    tokens, module = torch.tensor([[0, 1, 1]]), embedding(ZEROS)
    module.register_forward_hook(lambda module, given, logits: FailingBackward.apply(logits))
    done = subject.ModuleStudent(module, 2).forward(subject.Batch(tokens=tokens, labels=tokens))
    backward = functools.partial(done.backward, torch.ones_like(done.logits))
    assert_refused("a backward that fails", backward, "on purpose", kind=RuntimeError)
    assert_refused("a gradient after one that failed", backward, "already", kind=PassConsumedError)


ANSWERS: list[tuple[str, Callable[[Tensor], Any], tuple[str, ...]]] = [
    ("nothing", lambda logits: None, ("None instead of logits",)),
    ("a list", lambda logits: logits.tolist(), ("list",)),
    ("token ids", lambda logits: logits.argmax(-1), ("int64",)),
    ("a larger vocabulary", lambda logits: torch.cat([logits, logits], -1), ("vocabulary of 4",)),
    ("the last position only", lambda logits: logits[:, -1:], ("[2, 1, 2]",)),
    ("transposed positions", lambda logits: logits.transpose(0, 1), ("[3, 2, 2]",)),
    ("one number, as a loss is", lambda logits: logits.sum(), ("[]",)),
    ("a dict without attributes", lambda logits: {"logits": logits}, ("dict",)),
    ("NaN", lambda logits: torch.full_like(logits, math.nan), ("teacher", "nan")),
]


class Constant(nn.Module):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, tokens: Tensor) -> Any:
        return self.answer


def falsify_invalid_logits_are_refused(subject: Any) -> None:
    tokens = torch.tensor([[0, 1, 1], [1, 0, 1]])
    batch = subject.Batch(tokens=tokens, labels=tokens)
    for what, answered, words in ANSWERS:
        answer = answered(torch.zeros(2, 3, 2, dtype=torch.float64))
        for kind, teacher in (
            ("protocol", AnsweringTeacher(2, answer)),
            ("module", subject.ModuleTeacher(Constant(answer), 2)),
        ):
            of = f"a {kind} teacher that answers with {what}"
            assert_step_refused(subject, of, teacher, RecordingStudent(ZEROS), batch, USUAL, words)
        # None makes RecordingStudent return its table, and NaN is refused by the step only.
        words = tuple(word.replace("teacher", "student") for word in words)
        if answer is not None:
            learner, frozen = RecordingStudent(ZEROS, answer), subject.FixtureTeacher(ZEROS)
            of = f"a protocol student that answers with {what}"
            assert_step_refused(subject, of, frozen, learner, batch, USUAL, words)
        if "nan" not in words:
            forward = functools.partial(subject.ModuleStudent(Constant(answer), 2).forward, batch)
            assert_refused(f"a module student that answers with {what}", forward, *words)
