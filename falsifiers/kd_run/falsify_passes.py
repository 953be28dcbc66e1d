"""Attacks on forward passes: a gradient reaches the forward it belongs to, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.steps import batch_of, embedding
from falsifiers.support.strategies import StepCase, step_cases


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


@given(case=step_cases(), kind=st.sampled_from(["fixture", "module"]), axis=st.integers(0, 2))
def falsify_pass_is_consumed_once(subject: Any, case: StepCase, kind: str, axis: int) -> None:
    student, state = _student(subject, case, kind)
    done = student.forward(batch_of(subject, case))
    assert not done.logits.requires_grad, "a pass's logits have a graph; expected detached logits"
    before, gradient = state(), torch.ones_like(done.logits)
    _assert_misshapen_gradients_are_refused(done, gradient, axis)
    assert torch.equal(state(), before), "a gradient of the wrong shape was refused but applied"
    done.backward(gradient)
    after = state()
    complaint = oracles.refusal_complaint(
        "a second gradient", lambda: done.backward(gradient), "already", kind=RuntimeError
    )
    assert complaint is None, complaint
    assert torch.equal(state(), after), "the second gradient was refused but applied"
    assert not torch.equal(after, before), "the first gradient was not applied"


def _student(subject: Any, case: StepCase, kind: str) -> tuple[Any, Callable[[], Tensor]]:
    """Return a student of this kind and a function that returns what gradients have changed."""
    if kind == "fixture":
        student = subject.FixtureStudent(case.student, 1.0)
        return student, lambda: student.logits_table
    module = embedding(case.student)
    learner = subject.ModuleStudent(module, case.student.shape[1])

    def state() -> Tensor:
        return torch.zeros_like(case.student) if module.weight.grad is None else module.weight.grad.clone()

    return learner, state


def _assert_misshapen_gradients_are_refused(done: Any, gradient: Tensor, axis: int) -> None:
    """Assert that no gradient, and gradients of other shapes than the logits', are refused."""
    wrong = gradient.narrow(axis, 0, 1) if gradient.shape[axis] > 1 else torch.cat([gradient] * 2, axis)
    oracles.assert_refused("no gradient at all", lambda: done.backward(None), "NoneType")
    for misshapen in (wrong, gradient.flatten(), gradient.flatten(0, 1)):
        what = f"a gradient of shape {list(misshapen.shape)}"
        said = (f"has shape {list(misshapen.shape)}", f"the logits {list(done.logits.shape)}")
        oracles.assert_refused(what, lambda misshapen=misshapen: done.backward(misshapen), *said)
