"""Attacks on students and fixtures: accumulated gradients and copied tables."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.steps import STEP, allowed_table, assert_result_is_the_oracles, batch_of, embedding
from falsifiers.support.strategies import LOGITS, StepCase, step_cases


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


@given(
    case=step_cases(logits=LOGITS), steps=st.integers(1, 3), output=st.sampled_from(sorted(OUTPUTS)), held=st.booleans()
)
def falsify_module_student_accumulates(
    subject: Any, device: str, case: StepCase, steps: int, output: str, held: bool
) -> None:
    """Gradients of several steps accumulate in .grad, and no parameter changes without an optimizer.

    An existing .grad is added to in place, as optimizers with one flat buffer need, and hooks run.
    """
    module = embedding(case.student, device)
    teacher_module = embedding(case.teacher, device)
    student = subject.ModuleStudent(Wrapped(module, output), case.student.shape[1])
    teacher = subject.ModuleTeacher(Wrapped(teacher_module, output), case.teacher.shape[1])
    buffer = torch.zeros_like(module.weight)
    hooked: list[Tensor] = []
    module.weight.grad = buffer if held else None
    module.weight.register_post_accumulate_grad_hook(hooked.append)
    for _ in range(steps):
        result = subject.kd_step(teacher, student, batch_of(subject, case), **case.settings)
        assert_result_is_the_oracles(result, case)
    assert torch.equal(module.weight.detach().cpu(), case.student), (
        "the student's parameters changed without an optimizer"
    )
    assert module.weight.grad is not None, "the student's parameters have no gradient"
    expected = steps * (case.student.double() - case.oracle_table(1.0))
    allowed = 2 * steps * allowed_table(case, 1.0)
    assert_same_gradient(
        ".grad of the table", module.weight.grad.cpu(), expected, allowed, f"{steps} steps' gradients added"
    )
    assert not held or torch.equal(buffer, module.weight.grad), (
        f".grad is a new tensor {module.weight.grad.tolist()}, its previous buffer holds {buffer.tolist()}; expected "
        f"the gradient to be added in place"
    )
    assert len(hooked) == steps, f"the parameter's post-accumulate hook ran {len(hooked)} times in {steps} steps"


@given(case=step_cases(), asking=st.booleans())
def falsify_fixtures_copy_their_tables(subject: Any, case: StepCase, asking: bool) -> None:
    """A fixture copies its table without the graph, and writing to its logits does not change it.

    The table may be a parameter that requires a gradient.
    """
    student_table, teacher_table = case.student.clone(), case.teacher.clone()
    batch = batch_of(subject, case)
    for leaf in (student_table, teacher_table):
        leaf.requires_grad_(asking)
    student, teacher = subject.FixtureStudent(student_table, 1.0), subject.FixtureTeacher(teacher_table)
    for what, logits in (
        ("the student's logits", student.forward(batch).logits),
        ("the student's table", student.logits_table),
        ("the teacher's logits", teacher.logits(batch)),
    ):
        assert not logits.requires_grad, f"{what} have the graph of the parameter that the fixture was made from"
    for leaf in (student_table, teacher_table):
        leaf.requires_grad_(False)
    subject.kd_step(teacher, student, batch, **case.settings)
    assert torch.equal(student_table, case.student), "a step changed the table that the student was made from"
    teacher.logits(batch).zero_()
    teacher_table.zero_()
    assert torch.equal(teacher.logits(batch), case.teacher[case.tokens]), (
        "the teacher's logits changed with the table it was made from or with earlier logits"
    )
    assert_same_gradient(
        "the student's table", student.logits_table, case.oracle_table(1.0), allowed_table(case, 1.0), STEP
    )
