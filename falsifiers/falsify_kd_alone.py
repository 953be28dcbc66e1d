"""Attacks on the claim that results depend on the arguments alone, and belong to whoever asked for them.

Not on modes of torch that happen to be on, earlier calls, where a tensor comes from, or what becomes of it afterwards.
The subject is that of `falsify_kd_loss`, or that of `falsify_kd_step`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.kd_comparison import (
    ANYWHERE,
    assert_gradient_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
)
from falsifiers.kd_steps import allowed_table, assert_result_is_the_oracles, batch_of, embedding, table_step
from falsifiers.strategies import KdCase, StepCase, kd_cases, step_cases

FLOATS = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


MODES: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "autocast to bfloat16": lambda device: torch.autocast(device, torch.bfloat16),
    "autocast to float16": lambda device: torch.autocast(device, torch.float16),
    "no_grad": lambda device: torch.no_grad(),
    "inference_mode": lambda device: torch.inference_mode(),
    "default dtype float64": lambda device: _default_dtype(torch.float64),
    "default dtype bfloat16": lambda device: _default_dtype(torch.bfloat16),
    "default device meta": lambda device: torch.device("meta"),
    "deterministic algorithms": lambda device: _deterministic(),
    "anomaly detection": lambda device: torch.autograd.set_detect_anomaly(True),
}
WITHOUT_GRAPH = ("no_grad", "inference_mode")


def _answers(subject: Any, case: KdCase, device: str, with_autograd: bool) -> dict[str, Tensor]:
    loss = case.loss(subject, device)
    answers = {"sum": loss.sum.detach(), "count": loss.count, "gradient": case.gradient(subject, device)}
    return {**answers, "autograd": case.autograd(subject, device)} if with_autograd else answers


def _assert_same_bits(when: str, seen: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for what, x in seen.items():
        same = x.dtype is expected[what].dtype and torch.equal(x, expected[what])
        assert same, f"{what} is {x.tolist()} in {x.dtype} {when}; expected {expected[what].tolist()}, as without"


@given(case=kd_cases(banned=ANYWHERE), dtype=FLOATS)
def falsify_modes_of_torch_change_nothing(subject: Any, device: str, case: KdCase, dtype: torch.dtype) -> None:
    """Loss, gradient and derivative keep every bit under autocast, other defaults and other grad modes."""
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    outside = _answers(subject, case, device, True)
    for name, mode in MODES.items():
        with mode(device):
            inside = _answers(subject, case, device, name not in WITHOUT_GRAPH)
        _assert_same_bits(f"under {name}", inside, outside)


@given(case=step_cases(dtype=torch.float32))
def falsify_modes_of_torch_leave_the_step_alone(subject: Any, device: str, case: StepCase) -> None:
    """The same of a whole step between tables: its result, and the table after it."""
    expected, table = table_step(subject, case, 1.0, device)
    # Unequal bits only where a device adds up one row's gradients in no fixed order.
    allowed = 0.0 if device == "cpu" else allowed_table(case, 1.0, 2.0**-24)
    for name, mode in MODES.items():
        with mode(device):
            result, moved = table_step(subject, case, 1.0, device)
        assert result == expected, f"the step's result under {name} is {result}; expected {expected}, as without"
        assert_same_gradient(f"the student's table under {name}", moved, table, allowed, "the same without")


def _in_inference_mode(logits: Tensor) -> Tensor:
    with torch.inference_mode():
        return logits.clone()


ORIGINS: dict[str, Callable[[Tensor], Tensor]] = {
    "made in inference mode": _in_inference_mode,
    "a parameter": lambda x: nn.Parameter(x.clone(), requires_grad=x.is_floating_point()),
    "part of a larger tensor": lambda x: torch.stack([x + 1, x, x + 1], -1)[..., 1],
    "with its axes stored in another order": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "one sequence, expanded": lambda x: x[:1].clone().expand(x.shape),
}


@given(case=kd_cases(banned=ANYWHERE), dtype=FLOATS)
def falsify_where_a_tensor_comes_from_does_not_matter(subject: Any, case: KdCase, dtype: torch.dtype) -> None:
    """Equal numbers give equal bits, in whatever memory and from whatever mode they come."""
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    for (origin, make), names in itertools.product(ORIGINS.items(), (("student",), ("teacher", "labels"))):
        made = {name: make(getattr(case, name)) for name in names}
        # The same numbers in memory of their own: an expanded sequence, for one, isn't the case it was made from.
        plain = case.but(**{name: torch.tensor(x.tolist(), dtype=x.dtype) for name, x in made.items()})
        seen = _answers(subject, case.but(**made), "cpu", True)
        _assert_same_bits(f"with {' and '.join(names)} {origin}", seen, _answers(subject, plain, "cpu", True))


@given(case=kd_cases(), changed=st.integers(1, 7))
def falsify_calls_know_nothing_of_each_other(subject: Any, case: KdCase, changed: int) -> None:
    """Arguments that were changed in place count as they are now, and answers stay what they were.

    Nor is anything drawn from the random numbers that the rest of a run needs.
    """
    live = case.but(student=case.student.clone(), teacher=case.teacher.clone(), labels=case.labels.clone())
    random = torch.get_rng_state()
    first, gradient = live.loss(subject), live.gradient(subject)
    assert torch.equal(random, torch.get_rng_state()), "a call drew from the global random numbers"
    before = (float(first.sum), int(first.count), gradient.clone())
    turned = torch.where(case.scored, (case.labels + 1) % case.student.shape[-1], case.labels).roll(1, 1)
    later = {"student": case.teacher - 1, "teacher": case.student.roll(1, -1), "labels": turned}
    names = [name for bit, name in enumerate(later) if changed >> bit & 1]
    for name in names:
        getattr(live, name).copy_(later[name])
    assert_loss_is_the_oracles(subject, live)
    assert_gradient_is_the_oracles(subject, live)
    now = (float(first.sum), int(first.count), gradient)
    assert before[:2] == now[:2] and torch.equal(before[2], now[2]), (
        f"sum, count and gradient of an earlier call were {before} and are {now} after a change of {names} and "
        f"another call"
    )


@given(case=kd_cases(), dtype=FLOATS)
def falsify_answers_belong_to_the_caller(subject: Any, device: str, case: KdCase, dtype: torch.dtype) -> None:
    """They can be changed in place and take part in other graphs, and neither reaches arguments or later answers."""
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    student, teacher, labels = (x.clone() for x in case.tensors(device))
    live = case.but(student=student, teacher=teacher, labels=labels)
    settings = live.arguments()
    loss, gradient = live.loss(subject), subject.kd_logit_gradient(student, teacher, labels, **settings)
    expected = gradient.clone()
    for what, x in (("sum", loss.sum), ("count", loss.count), ("gradient", gradient)):
        assert not x.is_inference(), (
            f"the {what} is an inference tensor: it can neither be changed in place nor saved for a backward"
        )
        for y in (student, teacher, labels):
            assert x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr(), f"the {what} is an argument's view"
    factor = torch.ones_like(gradient, requires_grad=True)
    (factor * gradient).sum().backward()
    assert factor.grad is not None and torch.equal(factor.grad, expected), (
        f"the derivative through a product with the gradient is {factor.grad}; expected {expected}"
    )
    gradient[...], _, _ = 7.0, loss.sum.mul_(0), loss.count.mul_(0)
    assert bool((gradient == 7.0).all()), f"the gradient, filled with 7, reads {gradient.tolist()}"
    again, after = live.loss(subject), live.gradient(subject)
    assert int(again.count) == int(case.scored.sum()), f"count is {int(again.count)} once earlier answers were changed"
    assert torch.equal(after, expected.cpu()), f"the gradient became {after.tolist()} once earlier answers were changed"
    _assert_differentiable_as_part(subject, live)


def _assert_differentiable_as_part(subject: Any, case: KdCase) -> None:
    """The loss of logits that a graph made, scaled in place by a caller: a part of the chain rule like any other."""
    leaf = case.student.clone().requires_grad_()
    loss = case.but(student=leaf * 1).loss(subject)
    if loss.sum.requires_grad:
        loss.sum.mul_(2).backward()
    seen, expected = leaf.grad, 2 * case.autograd(subject).to(leaf.device)
    # Twice a number rounds as the number does.
    assert seen is not None and torch.equal(seen, expected), (
        f"the derivative of the sum, doubled in place, is {seen}; expected twice that of the sum, {expected.tolist()}"
    )


class Lazy(nn.Module):
    """Builds a constant on its first forward and keeps it, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.full(hidden.shape[-1:], 2.0, dtype=hidden.dtype, device=hidden.device)
        return hidden * self.scale


@given(case=step_cases(), steps=st.integers(1, 2))
def falsify_a_teacher_leaves_nothing_behind(subject: Any, device: str, case: StepCase, steps: int) -> None:
    """A module that teacher and student share may keep what it builds in the teacher's forward: the student learns on.

    The teacher's answer is an ordinary tensor, and its forward draws no random numbers and leaves gradients on.
    """
    body, V = Lazy(), case.student.shape[1]
    embeddings = [embedding(x, device) for x in (case.student, case.teacher)]
    student = subject.ModuleStudent(nn.Sequential(embeddings[0], body), V)
    teacher = subject.ModuleTeacher(nn.Sequential(embeddings[1], body), V)
    batch, random = batch_of(subject, case, device), torch.get_rng_state()
    answer = teacher.logits(batch)
    assert torch.is_grad_enabled(), "the teacher's forward left gradients switched off for everybody"
    assert torch.equal(random, torch.get_rng_state()), "the teacher's forward drew from the global random numbers"
    doubled = case.but(student=2 * case.student, teacher=2 * case.teacher)
    try:
        for _ in range(steps):
            assert_result_is_the_oracles(subject.kd_step(teacher, student, batch, **case.settings), doubled)
    except RuntimeError as e:
        raise AssertionError(f"the student can't use what a shared module built for the teacher: {e}") from e
    assert not answer.is_inference(), "the teacher's logits are an inference tensor, which no graph can save"
    assert embeddings[0].weight.grad is not None, "the student's parameters got no gradient"
    expected = 2 * steps * (doubled.student - doubled.oracle_table(1.0))
    allowed = 4 * steps * allowed_table(doubled, 1.0)
    assert_same_gradient(".grad of the table", embeddings[0].weight.grad.cpu(), expected, allowed, "2 · d loss/d logit")
