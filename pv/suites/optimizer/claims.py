"""The tests of the claims. Weights have about 0.1, so that small changes are not lost in their rounding."""

import tempfile
from collections.abc import Sequence
from typing import Any

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


def drawn(bench: Bench, seed: int, scale: float, steps: int = STEPS) -> tuple[list[Tensor], Steps]:
    """Return weights and, for each step, their gradients."""
    source = torch.Generator().manual_seed(seed)
    weights = [0.1 * torch.randn(shape, generator=source) for shape in bench.shapes]
    return weights, [[scale * torch.randn(each.shape, generator=source) for each in weights] for _ in range(steps)]


def walk(run: Run, steps: Sequence[Sequence[Tensor | None]], rates: Sequence[float] = ()) -> list[Tensor]:
    """Take steps, each with its rate if there are any, and return the weights."""
    for k, gradients in enumerate(steps):
        for group in run.optimizer.param_groups if rates else ():
            group["lr"] = rates[k]
        run.step(gradients)
    return run.values()


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def apart(one: Tensor, other: Tensor) -> str:
    return f"{float((one - other).abs().max()):.3g}"


def explained(bench: Bench, found: Tensor, start: Tensor, gradients: list[Tensor], settings: Settings) -> str:
    """Return "; it has ..." with the known mistakes that give the weight."""
    if bench.formula is None:
        return ""
    known = {"the rate of the first step": bench.formula(start, gradients, [settings[0]] * len(settings))}
    without = [{**each, "weight_decay": 0} for each in settings]
    known["no weight decay"] = bench.formula(start, gradients, without)
    for name, mistake in MISTAKES.get(bench.name, {}).items():
        known[name] = FORMULAS[bench.name](start, gradients, settings, **mistake)
    causes = [name for name, wrong in known.items() if close(found, wrong, start, len(settings))]
    return f"; it has {', or '.join(causes)}" if causes else ""


def compare_formula(bench: Bench, run: Run, start: list[Tensor], steps: Steps, rates: Sequence[float]) -> None:
    """Take the steps; assert that the weights are those of the formula."""
    settings = [{**bench.group, **run.optimizer.param_groups[0], "lr": rate} for rate in rates]
    found = walk(run, steps, rates if len(set(rates)) > 1 else ())
    for i, first in enumerate(start):
        gradients, begin = [each[i].double() for each in steps], first.double()
        assert bench.formula is not None
        right, weight = bench.formula(begin, gradients, settings), found[i].double()
        assert close(weight, right, begin, len(rates)), (
            f"after {len(rates)} steps a weight of shape {[*first.shape]} is off by {apart(weight, right)}; the formula "
            f"changes it by {apart(right, begin)}, the optimizer by {apart(weight, begin)}"
            f"{explained(bench, weight, begin, gradients, settings)}"
        )


@given(options=st.sampled_from(OPTIONS), steps=st.integers(1, STEPS), **CASES)
def falsify_formula(bench: Bench, options: dict[str, Any], steps: int, seed: int, scale: float) -> None:
    options = options if set(options) <= set(bench.arguments) else {}
    start, gradients = drawn(bench, seed, scale, steps)
    compare_formula(bench, bench.start(start, **options), start, gradients, [RATE] * steps)


@given(first=st.booleans(), **CASES)
def falsify_rate_of_each_group(bench: Bench, first: bool, seed: int, scale: float) -> None:
    start, gradients = drawn(bench, seed, scale)
    still, moved = (0, 1) if first else (1, 0)
    rates = [0.0, RATE] if first else [RATE, 0.0]
    found = walk(bench.start(start, rates, weight_decay=0.0), gradients)
    change = apart(found[still], start[still])
    whole = walk(bench.start(start, weight_decay=0.0), gradients)
    cause = f", as with the rate {RATE} of the other group" if torch.equal(found[still], whole[still]) else ""
    assert torch.equal(found[still], start[still]), f"rate 0 in group {still} changes its weight by {change}{cause}"
    assert not torch.equal(found[moved], start[moved]), f"rate {RATE} in group {moved} does not change its weight"


@given(options=st.sampled_from(({}, {"momentum": 0.9})), **CASES)
def falsify_changed_rate(bench: Bench, options: dict[str, Any], seed: int, scale: float) -> None:
    start, gradients = drawn(bench, seed, scale, 2)
    kept, changed = bench.start(start, **options), bench.start(start, **options)
    if bench.formula is not None:
        compare_formula(bench, changed, start, gradients, [RATE, 3 * RATE])
        return
    with_old, with_new = walk(kept, gradients), walk(changed, gradients, [RATE, 3 * RATE])
    assert not same(with_old, with_new), (
        f"a rate set to {3 * RATE} in param_groups after a step with {RATE} changes nothing in the next step"
    )


@given(seed=st.integers(0, 99))
def falsify_decoupled_decay(bench: Bench, seed: int) -> None:
    start, _ = drawn(bench, seed, 1.0)
    rates = [RATE, 3 * RATE]
    run = bench.start(start, rates, weight_decay=0.1)
    decays = [group["weight_decay"] for group in run.optimizer.param_groups]
    found = walk(run, [[torch.zeros_like(each) for each in start]])
    for weight, begin, rate, decay in zip(found, start, rates, decays, strict=True):
        for name, wrong in (
            ("rate, whatever the weight: the decay is added to the gradient", begin - rate * begin.sign()),
            ("weight times decay, without the rate", begin * (1 - decay)),
            ("nothing", begin),
        ):
            cause = f"; it loses {name}" if decay and close(weight, wrong, begin, 1) else ""
            if cause:
                break
        assert torch.allclose(weight, begin * (1 - rate * decay), rtol=1e-6, atol=0), (
            f"with zero gradient, rate {rate} and decay {decay}, a weight changes by {apart(weight, begin)}; "
            f"rate times decay times weight is {apart(begin, begin * (1 - rate * decay))}{cause}"
        )


@given(**CASES)
def falsify_parameter_without_gradient(bench: Bench, seed: int, scale: float) -> None:
    start, gradients = drawn(bench, seed, scale)
    for before in (0, 2):
        run = bench.start(start, weight_decay=0.1, momentum=0.9)
        middle, state = walk(run, gradients[:before]), repr(run.optimizer.state.get(run.weights[1]) or {})
        end = walk(run, [[each[0], None] for each in gradients[2:]])
        when = f"after {before} steps with a gradient, three without change" if before else "three steps change"
        change = apart(end[1], middle[1])
        assert torch.equal(end[1], middle[1]), f"{when} a parameter whose gradient is None by {change}"
        after = repr(run.optimizer.state.get(run.weights[1]) or {})
        assert after == state, f"{when} the state of a parameter whose gradient is None from {state} to {after}"


@given(before=st.integers(1, 3), **CASES)
def falsify_restored_state(bench: Bench, before: int, seed: int, scale: float) -> None:
    start, gradients = drawn(bench, seed, scale, before + 3)
    run = bench.start(start, momentum=0.9)
    middle = walk(run, gradients[:before], [3 * RATE] * before)
    restored, fresh = bench.start(middle, momentum=0.9), bench.start(middle, momentum=0.9)
    with tempfile.TemporaryFile() as file:
        torch.save(run.optimizer.state_dict(), file)
        file.seek(0)
        restored.optimizer.load_state_dict(torch.load(file, weights_only=False))
    for k, each in enumerate(gradients[before:], 1):
        right, found, new = run.step(each).values(), restored.step(each).values(), fresh.step(each).values()
        cause = "; it is the step of an optimizer without state and with its first rate" if same(found, new) else ""
        off = max(float((one - other).abs().max()) for one, other in zip(found, right, strict=True))
        assert same(found, right), f"step {k} after load_state_dict at step {before} is off by {off:.3g}{cause}"


@given(**CASES)
def falsify_foreach_and_fused(bench: Bench, seed: int, scale: float) -> None:
    start, steps = drawn(bench, seed, scale)
    late: list[list[Tensor | None]] = [[steps[0][0], None], *steps[1:]]
    for flag in bench.flags:
        plain, other = (walk(bench.start(start, weight_decay=0.1, **{flag: on}), late) for on in (False, True))
        for one, two, begin in zip(plain, other, start, strict=True):
            change = f"with {flag}, a weight of shape {[*begin.shape]} changes by {apart(two, begin)}"
            assert close(two, one, begin, STEPS), (
                f"{change}, without it by {apart(one, begin)}, {apart(two, one)} apart"
            )


@given(**CASES)
def falsify_gradients_are_left(bench: Bench, seed: int, scale: float) -> None:
    start, gradients = drawn(bench, seed, scale)
    run, reused = (bench.start(start, weight_decay=0.1, momentum=0.9) for _ in range(2))
    reused.step(gradients[0])
    for k, each in enumerate(gradients):
        for weight, gradient in zip(run.step(each).weights, each, strict=True):
            assert weight.grad is not None and torch.equal(weight.grad, gradient), f"step {k + 1} changes a gradient"
        for weight, gradient in zip(reused.weights if k else (), each, strict=False):
            assert weight.grad is not None
            weight.grad.copy_(gradient)
        if k:
            reused.optimizer.step()
    assert same(run.values(), reused.values()), "a gradient written in place changes the state: it is kept, not copied"


@given(**CASES)
def falsify_parameters_are_independent(bench: Bench, seed: int, scale: float) -> None:
    start, gradients = drawn(bench, seed, scale)
    both = walk(bench.start(start), gradients), walk(bench.start(start[::-1]), [each[::-1] for each in gradients])[::-1]
    for i, begin in enumerate(start):
        alone = walk(bench.start([begin]), [[each[i]] for each in gradients])[0]
        for name, found in (
            ("before" if i == 0 else "after", both[0][i]),
            ("after" if i == 0 else "before", both[1][i]),
        ):
            assert close(found, alone, begin, STEPS), (
                f"a parameter that comes {name} another changes by {apart(found, begin)}, alone by {apart(alone, begin)}"
            )
