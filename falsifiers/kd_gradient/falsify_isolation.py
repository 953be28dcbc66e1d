"""Attacks on the isolation of a distillation loss: results depend on the arguments alone and are owned by the caller.

They depend neither on PyTorch's modes, nor on earlier calls, nor on the origin or later changes of a tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.comparison import (
    ANYWHERE,
    assert_gradient_is_the_oracles,
    assert_loss_is_the_oracles,
)
from falsifiers.support.strategies import KdCase, kd_cases
from falsifiers.support.torch_modes import MODES, WITHOUT_GRAPH

FLOATS = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


def _answers(subject: Any, case: KdCase, device: str, with_autograd: bool) -> dict[str, Tensor]:
    loss = case.loss(subject, device)
    answers = {"sum": loss.sum.detach(), "count": loss.count, "gradient": case.gradient(subject, device)}
    return {**answers, "autograd": case.autograd(subject, device)} if with_autograd else answers


def _assert_same_bits(when: str, seen: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for what, x in seen.items():
        same = x.dtype is expected[what].dtype and torch.equal(x, expected[what])
        assert same, f"{what} is {x.tolist()} in {x.dtype} {when}; expected {expected[what].tolist()}"


@given(case=kd_cases(banned=ANYWHERE), dtype=FLOATS)
def falsify_loss_is_independent_of_torch_modes(subject: Any, device: str, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    outside = _answers(subject, case, device, True)
    for name, mode in MODES.items():
        with mode(device):
            inside = _answers(subject, case, device, name not in WITHOUT_GRAPH)
        _assert_same_bits(f"under {name}", inside, outside)


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
def falsify_tensor_origin_is_irrelevant(subject: Any, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    for (origin, make), names in itertools.product(ORIGINS.items(), (("student",), ("teacher", "labels"))):
        made = {name: make(getattr(case, name)) for name in names}
        # The same numbers in contiguous memory; an expanded sequence differs from the case it was made from.
        plain = case.but(**{name: torch.tensor(x.tolist(), dtype=x.dtype) for name, x in made.items()})
        seen = _answers(subject, case.but(**made), "cpu", True)
        _assert_same_bits(f"with {' and '.join(names)} {origin}", seen, _answers(subject, plain, "cpu", True))


@given(case=kd_cases(), changed=st.integers(1, 7))
def falsify_calls_are_independent(subject: Any, case: KdCase, changed: int) -> None:
    live = case.but(student=case.student.clone(), teacher=case.teacher.clone(), labels=case.labels.clone())
    random = torch.get_rng_state()
    first, gradient = live.loss(subject), live.gradient(subject)
    assert torch.equal(random, torch.get_rng_state()), "a call changed the global random state"
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
        f"sum, count and gradient of an earlier call changed from {before} to {now} after a change of {names} and "
        f"another call"
    )


@given(case=kd_cases(), dtype=FLOATS)
def falsify_results_are_owned_by_the_caller(subject: Any, device: str, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    student, teacher, labels = (x.clone() for x in case.tensors(device))
    live = case.but(student=student, teacher=teacher, labels=labels)
    loss, gradient = live.loss(subject), live.gradient_on_device(subject)
    expected = gradient.clone()
    for what, x in (("sum", loss.sum), ("count", loss.count), ("gradient", gradient)):
        _assert_owned(what, x, [student, teacher, labels])
    factor = torch.ones_like(gradient, requires_grad=True)
    torch.autograd.backward((factor * gradient).sum())
    assert factor.grad is not None and torch.equal(factor.grad, expected), (
        f"the derivative through a product with the gradient is {factor.grad}; expected {expected}"
    )
    gradient[...], _, _ = 7.0, loss.sum.mul_(0), loss.count.mul_(0)
    assert bool((gradient == 7.0).all()), f"the gradient is {gradient.tolist()} after it was filled with 7"
    again, after = live.loss(subject), live.gradient(subject)
    assert int(again.count) == int(case.scored.sum()), f"count is {int(again.count)} after earlier results were changed"
    assert torch.equal(after, expected.cpu()), (
        f"the gradient is {after.tolist()} after earlier results were changed; expected {expected.tolist()}"
    )
    _assert_differentiable_as_part(subject, live)


def _assert_owned(what: str, result: Tensor, arguments: list[Tensor]) -> None:
    """Assert that a result can be saved for backward and shares no memory with an argument."""
    assert not result.is_inference(), (
        f"the {what} is an inference tensor; expected one that can be changed in place and saved for backward"
    )
    memory = {x.untyped_storage().data_ptr() for x in arguments}
    assert result.untyped_storage().data_ptr() not in memory, f"the {what} shares memory with an argument"


def _assert_differentiable_as_part(subject: Any, case: KdCase) -> None:
    """Assert that the sum can be scaled in place and differentiated, for logits that are part of a graph."""
    leaf = case.student.clone().requires_grad_()
    loss = case.but(student=leaf * 1).loss(subject)
    if loss.sum.requires_grad:
        loss.sum.mul_(2).backward()
    seen, expected = leaf.grad, 2 * case.autograd(subject).to(leaf.device)
    # Doubling is exact.
    assert seen is not None and torch.equal(seen, expected), (
        f"the derivative of the sum, doubled in place, is {seen}; expected twice that of the sum, {expected.tolist()}"
    )
