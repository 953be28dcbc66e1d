"""The tests of the claims. Weights are about 0.1, so that small changes are not lost in their rounding."""

import tempfile
from collections.abc import Sequence
from typing import Any
from unittest import SkipTest

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pv.suites.optimizer.bench import RATE, Bench, Run
from pv.suites.optimizer.formulas import FORMULAS, MISTAKES, Settings, close

CASES: dict[str, Any] = {"seed": st.integers(0, 99), "scale": st.sampled_from((1.0, 1e-2, 1e-4))}
OPTIONS = (
    {"weight_decay": 0.0},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.5},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
)
STEPS = 5
Steps = list[list[Tensor]]


def draw_steps(bench: Bench, seed: int, scale: float, steps: int = STEPS) -> tuple[list[Tensor], Steps]:
    """Return weights and, for each step, their gradients."""
    source = torch.Generator().manual_seed(seed)
    weights = [0.1 * torch.randn(shape, generator=source) for shape in bench.shapes]
    return weights, [[scale * torch.randn(weight.shape, generator=source) for weight in weights] for _ in range(steps)]


def take_steps(run: Run, steps: Sequence[Sequence[Tensor | None]], rates: Sequence[float] = ()) -> list[Tensor]:
    """Take steps, each with its rate if there are any, and return the weights."""
    weights = [weight.detach().clone() for weight in run.weights]
    for k, gradients in enumerate(steps):
        for group in run.optimizer.param_groups if rates else ():
            group["lr"] = rates[k]
        weights = run.step(gradients)
    return weights


def apart(one: Tensor, other: Tensor) -> str:
    return f"{float((one - other).abs().max()):.3g}"


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def explain(bench: Bench, formula: Any, actual: Tensor, start: Tensor, steps: list[Tensor], settings: Settings) -> str:
    """Return "; it has ..." with the known mistakes that give the weight."""
    mistakes = {"the rate of the first step": formula(start, steps, [settings[0]] * len(settings))}
    mistakes["no weight decay"] = formula(start, steps, [{**step, "weight_decay": 0} for step in settings])
    for name, mistake in MISTAKES.get(bench.name, {}).items():
        mistakes[name] = FORMULAS[bench.name](start, steps, settings, **mistake)
    causes = [name for name, wrong in mistakes.items() if close(actual, wrong, start, len(settings))]
    return f"; it has {', or '.join(causes)}" if causes else ""


def fault(bench: Bench, run: Run, start: list[Tensor], steps: Steps, rates: Sequence[float]) -> str:
    """Take the steps, and return how a weight differs from that of the formula; "" if none does."""
    formula, groups = bench.formula, [{**run.group(weight)} for weight in run.weights]
    actual = take_steps(run, steps, rates if len({*rates}) > 1 else ())
    for i, first in enumerate(start if formula else ()):
        # The formula runs in float64 with the settings of the group, as the optimizer holds them.
        settings, gradients = [{**groups[i], "lr": rate} for rate in rates], [step[i].double() for step in steps]
        begin, weight = first.double(), actual[i].double()
        assert formula is not None
        right = formula(begin, gradients, settings)
        if not close(weight, right, begin, len(rates)):
            return (
                f"after {len(rates)} steps a weight of shape {[*first.shape]} is off by {apart(weight, right)}; the "
                f"formula changes it by {apart(right, begin)}, the optimizer by {apart(weight, begin)}"
                f"{explain(bench, formula, weight, begin, gradients, settings)}"
            )
    return ""


@given(options=st.sampled_from(OPTIONS), steps=st.integers(1, STEPS), **CASES)
def falsify_formula(bench: Bench, options: dict[str, Any], steps: int, seed: int, scale: float) -> None:
    if bench.formula is None:  # it is declared, or the claim would not be tried
        raise SkipTest(f"{bench.name}; write the settings into the groups, or pass a function as `formula`")
    start, gradients = draw_steps(bench, seed, scale, steps)
    try:
        run = bench.start(start, **(options if set(options) <= bench.arguments else {}))
    except ValueError:  # it refuses these options together
        run = bench.start(start)
    wrong = fault(bench, run, start, gradients, [RATE] * steps)
    assert not wrong, wrong


@given(still=st.integers(0, 1), **CASES)
def falsify_rate_of_each_group(bench: Bench, still: int, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    whole = take_steps(bench.start(start, weight_decay=0.0), gradients)
    try:
        run = bench.start(start, [0.0 if i == still else RATE for i in (0, 1)], weight_decay=0.0)
    except ValueError:  # it refuses a rate of 0
        run = bench.start(start, [RATE, RATE], weight_decay=0.0)
        run.group(run.weights[still])["lr"] = 0.0
    actual = take_steps(run, gradients)
    cause = f", as with the rate {RATE} of the other group" if torch.equal(actual[still], whole[still]) else ""
    change = f"rate 0 in group {still} changes its weight by {apart(actual[still], start[still])}{cause}"
    assert torch.equal(actual[still], start[still]), change
    moved = 1 - still
    assert not torch.equal(actual[moved], start[moved]), f"rate {RATE} in group {moved} does not change its weight"


@given(options=st.sampled_from(({}, {"momentum": 0.9})), **CASES)
def falsify_changed_rate(bench: Bench, options: dict[str, Any], seed: int, scale: float) -> None:
    start, steps = draw_steps(bench, seed, scale, 2)
    rates, (kept, changed, other) = [RATE, 3 * RATE], (bench.start(start, **options) for _ in range(3))
    assert not same(take_steps(changed, steps, rates), take_steps(kept, steps)), (
        f"a rate set to {rates[1]} in param_groups after a step with {rates[0]} changes nothing in the next step"
    )
    # A formula that does not fit with a constant rate is the fault of another claim.
    if not fault(bench, bench.start(start, **options), start, steps, [RATE, RATE]):
        wrong = fault(bench, other, start, steps, rates)
        assert not wrong, f"with a rate of {rates[1]} in the second step, {wrong}"


@given(seed=st.integers(0, 99))
def falsify_decoupled_decay(bench: Bench, seed: int) -> None:
    start, _ = draw_steps(bench, seed, 1.0)
    run = bench.start(start, weight_decay=0.1)
    # With zero gradients only the decay changes a weight.
    decays = [run.group(weight).get("weight_decay", 0.1) for weight in run.weights]
    actual = run.step([torch.zeros_like(weight) for weight in start])
    for weight, begin, decay in zip(actual, start, decays, strict=True):
        wrong = {"the rate: the decay is added to the gradient": begin - RATE * begin.sign()}
        wrong |= {"decay times weight, without the rate": begin * (1 - decay), "nothing": begin}
        causes = [f"; it loses {name}" for name, weights in wrong.items() if close(weight, weights, begin, 1)]
        right = begin * (1 - RATE * decay)
        assert torch.allclose(weight, right, rtol=1e-6, atol=0), (
            f"with zero gradient, rate {RATE} and decay {decay}, a weight changes by {apart(weight, begin)}; "
            f"rate times decay times weight is {apart(begin, right)}{''.join(causes[:1])}"
        )


@given(before=st.sampled_from((0, 2)), **CASES)
def falsify_parameter_without_gradient(bench: Bench, before: int, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    run = bench.start(start, weight_decay=0.1, momentum=0.9)
    middle, state = take_steps(run, gradients[:before])[1], repr(run.optimizer.state.get(run.weights[1]) or {})
    end = take_steps(run, [[step[0], None] for step in gradients[before:]])[1]
    change = f"after {before} steps with a gradient, steps in which it is None change"
    assert torch.equal(end, middle), f"{change} a parameter by {apart(end, middle)}"
    after = repr(run.optimizer.state.get(run.weights[1]) or {})
    assert after == state, f"{change} the state from {state} to {after}"


@given(before=st.integers(1, 3), **CASES)
def falsify_restored_state(bench: Bench, before: int, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale, before + 3)
    run = bench.start(start, momentum=0.9)
    middle = take_steps(run, gradients[:before], [3 * RATE] * before)
    restored, fresh = bench.start(middle, momentum=0.9), bench.start(middle, momentum=0.9)
    # Through a file: a state that stays shared in memory would hide what is not saved.
    with tempfile.TemporaryFile() as file:
        torch.save(run.optimizer.state_dict(), file)
        file.seek(0)
        restored.optimizer.load_state_dict(torch.load(file, weights_only=False))
    for k, gradient in enumerate(gradients[before:], 1):
        right, actual, new = run.step(gradient), restored.step(gradient), fresh.step(gradient)
        cause = "; it is the step of an optimizer without state and with its first rate" if same(actual, new) else ""
        off = max(float((one - other).abs().max()) for one, other in zip(actual, right, strict=True))
        assert same(actual, right), f"step {k} after load_state_dict at step {before} is off by {off:.3g}{cause}"


@given(**CASES)
def falsify_foreach_and_fused(bench: Bench, seed: int, scale: float) -> None:
    start, steps = draw_steps(bench, seed, scale)
    # A parameter whose first gradient is None has fewer steps than the others, which grouped kernels must respect.
    late: list[Sequence[Tensor | None]] = [[steps[0][0], None], *steps[1:]]
    for flag in bench.flags:
        plain, other = (
            take_steps(bench.start(start, weight_decay=0.1, **dict[str, Any]({flag: on})), late) for on in (False, True)
        )
        for one, two, begin in zip(plain, other, start, strict=True):
            change = f"with {flag}, a weight of shape {[*begin.shape]} changes by {apart(two, begin)}"
            assert close(two, one, begin, STEPS), (
                f"{change}, without it by {apart(one, begin)}; {apart(two, one)} apart"
            )


@given(**CASES)
def falsify_gradients_are_left(bench: Bench, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    run, reused = (bench.start(start, weight_decay=0.1, momentum=0.9) for _ in range(2))
    for k, step_gradients in enumerate(gradients, 1):
        right, actual = run.step(step_gradients), reused.step(step_gradients, in_place=True)
        for weight, gradient in zip(run.weights, step_gradients, strict=True):
            assert weight.grad is not None and torch.equal(weight.grad, gradient), f"step {k} changes a gradient"
        assert same(actual, right), f"step {k} differs if gradients are written in place: the state keeps a gradient"


@given(**CASES)
def falsify_parameters_are_independent(bench: Bench, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    both = (
        take_steps(bench.start(start), gradients),
        take_steps(bench.start(start[::-1]), [gradient[::-1] for gradient in gradients])[::-1],
    )
    for i, begin in enumerate(start):
        alone = take_steps(bench.start([begin]), [[gradient[i]] for gradient in gradients])[0]
        for place, actual in enumerate((both[i][i], both[1 - i][i])):
            change = f"a parameter that comes {('before', 'after')[place]} another changes by {apart(actual, begin)}"
            assert close(actual, alone, begin, STEPS), f"{change}, alone by {apart(alone, begin)}"
