"""Claims about every distillation loss: value, gradient, invariances, masks and large logits."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pv.suites.distillation_loss.bench import Bench
from pv.suites.distillation_loss.oracle import Case, explain, near

SEEDS = st.integers(0, 99)
LARGE = ((torch.float32, 1e4), (torch.bfloat16, 1e4), (torch.float16, 1e3))


def close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-4 * float(other.abs().max()) + 1e-7)


def check_value(bench: Bench, case: Case, actual: float) -> None:
    right, (b, length, v) = float(bench.convention.loss(case)), case.student.shape
    masked = "" if case.keep.all() else f", {int(case.keep.sum())} positions that count"
    assert near(actual, right), (
        f"with T = {case.temperature}, B = {b}, L = {length}, V = {v}{masked}, the loss is {actual:.6g}; right for "
        f"{', '.join(vars(bench.convention).values())} is {right:.6g}{explain(actual, case, bench.convention)}"
    )


def check_gradient(bench: Bench, case: Case, actual: Tensor) -> None:
    student = case.student.double().requires_grad_()
    (right,) = torch.autograd.grad(bench.convention.loss(replace(case, student=student)), student)
    worst = (actual.double() - right).abs().argmax()
    one, other = float(actual.flatten()[worst]), float(right.flatten()[worst])
    # The least-squares factor: a gradient that is a multiple of the right one has a wrong constant.
    ratio = float((actual.double() * right).sum() / (right * right).sum())
    cause = f"; all of it is {ratio:.4g} times that" if close(actual, right * ratio) else ""
    assert close(actual, right), (
        f"with T = {case.temperature}, the gradient of a logit is {one:.4g}, not {other:.4g}{cause}"
    )


@given(seed=SEEDS)
def falsify_value(bench: Bench, seed: int) -> None:
    for temperature in bench.temperatures:
        case = bench.case(seed, temperature)
        check_value(bench, case, float(bench.loss(case).detach()))


@given(seed=SEEDS)
def falsify_zero_on_itself(bench: Bench, seed: int) -> None:
    for temperature in bench.temperatures:
        case = bench.case(seed, temperature, masked=True)
        same = replace(case, teacher=case.student)
        loss, gradient = bench.gradient(same)
        assert abs(loss) < 1e-5, (
            f"with T = {temperature} and equal logits, the loss is {loss:.6g}{explain(loss, same, bench.convention)}"
        )
        largest = float(gradient.abs().max())
        assert largest < 1e-5, f"with T = {temperature} and equal logits, a gradient is {largest:.4g}"


@given(seed=SEEDS)
def falsify_gradient(bench: Bench, seed: int) -> None:
    for temperature in bench.temperatures:
        case = bench.case(seed, temperature, masked=True)
        check_gradient(bench, case, bench.gradient(case)[1])


@given(seed=SEEDS)
def falsify_teacher_is_fixed(bench: Bench, seed: int) -> None:
    case = bench.case(seed, bench.temperatures[0])
    student, teacher = case.student.clone().requires_grad_(), case.teacher.clone().requires_grad_()
    bench.loss(replace(case, student=student, teacher=teacher)).backward()
    largest = 0.0 if teacher.grad is None else float(teacher.grad.abs().max())
    assert not largest, f"the teacher's logits have a gradient of up to {largest:.4g}; detach them"


@given(seed=SEEDS, constant=st.sampled_from((3.0, -40.0)))
def falsify_constant_of_a_row(bench: Bench, seed: int, constant: float) -> None:
    case = bench.case(seed, bench.temperatures[0])
    right, gradient = bench.gradient(case)
    for name in ("student", "teacher"):
        # Every other row only, so that a constant of all logits cannot cancel between rows.
        moved = getattr(case, name) + constant * (torch.arange(case.keep.numel()) % 2).reshape(*case.keep.shape, 1)
        actual, other = bench.gradient(replace(case, **{name: moved}))
        change = f"{constant} added to all logits of every other row of the {name} changes"
        assert near(actual, right) or abs(actual - right) < 1e-4 * abs(right) + 1e-5, (
            f"{change} the loss from {right:.6g} to {actual:.6g}"
        )
        assert close(other, gradient), f"{change} the gradient by {float((other - gradient).abs().max()):.4g}"


@given(seed=SEEDS)
def falsify_large_logits(bench: Bench, seed: int) -> None:
    for dtype, scale in LARGE:
        case = bench.case(seed, scale=scale / 2)
        case = replace(case, student=case.student.to(dtype), teacher=case.teacher.to(dtype))
        loss, gradient = bench.gradient(case)
        right = float(bench.convention.loss(case))
        place = f"with logits of up to {float(case.student.abs().max()):.0f} in {dtype}"
        assert abs(loss - right) < 0.05 * right, f"{place}, the loss is {loss:.6g}, not {right:.6g}"
        assert gradient.isfinite().all(), f"{place}, a gradient is {float(gradient[~gradient.isfinite()][0])}"


@given(seed=SEEDS)
def falsify_mask(bench: Bench, seed: int) -> None:
    case = bench.case(seed, bench.temperatures[0], masked=True)
    loss, gradient = bench.gradient(case)
    check_value(bench, case, loss)
    masked = gradient[~case.keep].abs()
    assert not masked.any(), f"a position that does not count has a gradient of {float(masked.max()):.4g}"
    for name in ("student", "teacher"):
        other = getattr(case, name).where(case.keep[..., None], 50.0 * torch.arange(case.student.shape[-1]))
        actual = bench.gradient(replace(case, **{name: other}))[0]
        assert near(actual, loss), (
            f"other logits of the {name} at positions that do not count change the loss from {loss:.6g} to {actual:.6g}"
        )


@given(seed=SEEDS)
def falsify_split(bench: Bench, seed: int) -> None:
    case = bench.case(seed, bench.temperatures[0], masked=True)
    parts = [case.only(rows) for rows in (slice(0, 1), slice(1, None))]
    weights = [bench.convention.weight(part) for part in parts]
    losses = [float(bench.loss(part).detach()) for part in parts]
    whole, total = float(bench.loss(case).detach()), bench.convention.weight(case)
    # A mean over positions must be the mean of the parts, weighted by their positions.
    joined = sum(loss * weight for loss, weight in zip(losses, weights, strict=True)) / total
    mean = sum(losses) / 2
    cause = "; that is their plain mean" if near(whole, mean) else ""
    assert near(whole, joined), (
        f"parts with the weights {weights} have the losses {losses[0]:.6g} and {losses[1]:.6g}, the whole has "
        f"{whole:.6g}{cause}, not {joined:.6g}"
    )
