"""The suite `optimizer`: the formulas of the papers in float64, the bench of an optimizer, and the claims."""

import inspect
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest import SkipTest

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from pv.suites.bench import CallableBench, judge, parameters_of

Settings: TypeAlias = Sequence[Mapping[str, Any]]
Formula: TypeAlias = Callable[[Tensor, Sequence[Tensor], Settings], Tensor]
"""Returns a weight after some steps.

Its arguments are the initial weight, the gradient of every step, and the settings of the parameter group in every step.
"""

RELATIVE = 2e-4
"""Tolerance relative to the change of a weight: 1 - 0.999 in float32 has a relative error of 3e-5."""
ULPS = 4
"""Allowed rounding error of the weight itself per step, in units in the last place."""


def sgd(weight: Tensor, gradients: Sequence[Tensor], settings: Settings, *, damped_first: bool = False) -> Tensor:
    """Return a weight after steps of SGD, as documented for torch.optim.SGD: the first gradient is not damped.

    Args:
        weight: The initial weight.
        gradients: The gradient of every step.
        settings: The settings of the parameter group in every step.
        damped_first: True for the mistake that dampening applies to the first gradient.
    """
    buffer = None
    for gradient, group in zip(gradients, settings, strict=True):
        # v = momentum v + (1 - dampening) g; with Nesterov the step is g + momentum v (Sutskever et al. 2013, as
        # PyTorch writes it).
        momentum, undamped = group.get("momentum", 0), 1 - group.get("dampening", 0)
        gradient = (-gradient if group.get("maximize") else gradient) + group.get("weight_decay", 0) * weight
        if buffer is None:
            buffer = gradient * (undamped if damped_first else 1)
        else:
            buffer = momentum * buffer + undamped * gradient
        if momentum:
            gradient = gradient + momentum * buffer if group.get("nesterov") else buffer
        weight = weight - group["lr"] * gradient
    return weight


def adam(
    weight: Tensor,
    gradients: Sequence[Tensor],
    settings: Settings,
    *,
    decoupled: bool,
    shift: int = 0,
    eps_place: str = "",
) -> Tensor:
    """Return a weight after steps of Adam or AdamW.

    See Kingma and Ba 2015, algorithm 1, and Loshchilov and Hutter 2019, algorithm 2, where alpha is 1.

    Args:
        weight: The initial weight.
        gradients: The gradient of every step.
        settings: The settings of the parameter group in every step.
        decoupled: Whether the weight decay is decoupled (algorithm 2).
        shift: A mistake: this number is added to the step in the bias correction, or -1 leaves the correction out.
        eps_place: A mistake: eps is added `inside` the root, or `before` the bias correction; "" for no mistake.
    """
    mean = square = torch.zeros_like(weight)
    for step, (gradient, group) in enumerate(zip(gradients, settings, strict=True), 1):
        (beta1, beta2), rate, decay = group["betas"], group["lr"], group.get("weight_decay", 0)
        gradient = (-gradient if group.get("maximize") else gradient) + (0 if decoupled else decay * weight)
        weight = weight * (1 - rate * decay) if decoupled else weight
        mean, square = beta1 * mean + (1 - beta1) * gradient, beta2 * square + (1 - beta2) * gradient**2
        # The averages start at 0; dividing by 1 - beta^t removes this bias.
        bias1, bias2 = (1.0, 1.0) if shift < 0 else (1 - beta1 ** (step + shift), 1 - beta2 ** (step + shift))
        root = (square / bias2 + (group["eps"] if eps_place == "inside" else 0)).sqrt()
        eps = {"": group["eps"], "inside": 0, "before": group["eps"] / bias2**0.5}[eps_place]
        weight = weight - rate * (mean / bias1) / (root + eps)
    return weight


FORMULAS: dict[str, Formula] = {
    "sgd": sgd,
    "adam": partial(adam, decoupled=False),
    "adamw": partial(adam, decoupled=True),
}
_ADAM_MISTAKES: dict[str, dict[str, str | int]] = {
    "the bias correction of the next step": {"shift": 1},
    "no bias correction": {"shift": -1},
    "epsilon inside the root": {"eps_place": "inside"},
    "epsilon added before the bias correction": {"eps_place": "before"},
}
MISTAKES: dict[str, dict[str, dict[str, str | int]]] = {
    "sgd": {"dampening of the first gradient": {"damped_first": True}},
    "adam": {**_ADAM_MISTAKES, "decoupled weight decay": {"decoupled": True}},
    "adamw": {**_ADAM_MISTAKES, "weight decay that is added to the gradient": {"decoupled": False}},
}
"""The known mistakes of every formula: their names, and the arguments with which the formula makes the mistake."""


def close(actual: Tensor, expected: Tensor, start: Tensor, steps: int) -> bool:
    """Return whether weights are equal within the rounding of `steps` steps in float32."""
    rounding = ULPS * steps * torch.finfo(torch.float32).eps * float(start.abs().max())
    # The tolerance is relative to the change: relative to the weight, even a wrong step is small.
    allowed = RELATIVE * float((expected - start).abs().max()) + rounding
    return float((actual - expected).abs().max()) <= allowed  # False for NaN


RATE = 0.01
RATE_NAMES = ("lr", "rate", "learning_rate")
"""The usual names of the parameter for the learning rate."""
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
SHAPES: tuple[Shapes, ...] = (((4, 3), (5,)), ((4, 3), (3, 5)))
"""Shapes of the parameters, in the order in which they are tried: some optimizers take matrices only."""
WRITE = """cannot call {name}: {why}. The suite passes a list of float32 parameters and a rate, and takes steps
without a closure on dense gradients. Write a function that adds the other arguments, and pass it:

    def make(parameters, lr=1e-3):
        return {name}(parameters, lr=lr, ...)

    make.formula = "adamw"  # or "sgd", "adam", a function (weight, gradients, settings) -> weight, or leave it out"""
UNKNOWN_FORMULA = """its step is not inherited from SGD, Adam or AdamW; set its attribute `formula` to "sgd", "adam", \
"adamw", or a function (weight, gradients, settings of every step) -> weight in float64"""
RATE_EXCEPTIONS = {
    torch.optim.Rprop: "the rate is only the size of the first step",
    torch.optim.ASGD: "a changed rate is used one step later",
}
"""The classes of optimizers to which the claims about rates do not apply, with the reason."""


@dataclass(eq=False)
class Run:
    """A run of an optimizer: the optimizer with its parameters."""

    optimizer: Optimizer
    weights: list[nn.Parameter]

    def step(self, gradients: Sequence[Tensor | None], *, in_place: bool = False) -> list[Tensor]:
        """Take a step, and return copies of the new weights.

        Args:
            gradients: The gradient of every weight; None for a weight without one.
            in_place: Whether a gradient is written into the tensor of the previous gradient.
        """
        for weight, gradient in zip(self.weights, gradients, strict=True):
            # A loop may reuse or drop the tensors of gradients, so an optimizer must not keep a reference to them.
            if in_place and weight.grad is not None and gradient is not None:
                weight.grad.copy_(gradient)
            else:
                weight.grad = None if gradient is None else gradient.clone()
        # Optimizers with stochastic rounding draw random numbers; equal seeds make runs comparable.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.optimizer.step()
        return [weight.detach().clone() for weight in self.weights]

    def group(self, weight: Tensor) -> dict[str, Any]:
        """Return the parameter group of a weight."""
        return next(
            group for group in self.optimizer.param_groups if any(member is weight for member in group["params"])
        )


class Bench(CallableBench):
    """A class or function that creates an optimizer from parameters and a rate.

    The subject may have the attributes

    * `formula`: the name of a formula, or a function;
    * `decoupled`: True if the weight decay is decoupled, and the formula does not show it;
    * `independent`: True if a step of a parameter does not depend on other parameters, and there is no formula;
    * `features` and `not_claimed`, as for all subjects.
    """

    write = WRITE

    def __init__(self, make: Callable[..., object]) -> None:
        super().__init__(make)
        if not callable(make):
            self.refuse("it is not callable")
        self.arguments = {*parameters_of(make)}
        self.rate_name = next((name for name in RATE_NAMES if name in self.arguments), "")
        if not self.rate_name:
            self.refuse(f"none of its parameters is named {', '.join(RATE_NAMES)}")
        self.shapes, run = self._first_run()
        self.formula_name, self.formula, self.why_no_formula = self._formula(run)
        self.flags = [flag for flag in ("foreach", "fused") if flag in self.arguments and self._accepts_flag(flag)]
        # If the subject declares a formula that cannot be computed, the claims about it are tried, and raise SkipTest.
        unknown = self.why_no_formula if getattr(make, "formula", None) is None else ""
        decoupled = "adamw" in (self.formula_name, getattr(make, "formula", "")) or getattr(make, "decoupled", False)
        decays = "weight_decay" in self.arguments or any(
            group.get("weight_decay") for group in run.optimizer.param_groups
        )
        self.set_features(
            {
                "formula": unknown,
                "independence": "" if getattr(make, "independent", False) else unknown,
                "decoupled": "" if decoupled and decays else "its weight decay is not known to be decoupled",
                "flags": "" if self.flags else "neither foreach nor fused is a parameter that works on the CPU",
                "rates": next((why for kind, why in RATE_EXCEPTIONS.items() if isinstance(run.optimizer, kind)), ""),
            }
        )

    def start(self, weights: Sequence[Tensor], rates: Sequence[float] = (), /, **settings: object) -> Run:
        """Create an optimizer of copies of the weights.

        Args:
            weights: The initial weights. Each of them becomes a parameter.
            rates: The learning rate of every weight. Each weight is then a parameter group; () for a single group.
            **settings: Arguments of the optimizer. An argument that the optimizer does not have is left out.

        Returns:
            The optimizer with its parameters.
        """
        parameters = [nn.Parameter(weight.clone()) for weight in weights]
        settings = {name: value for name, value in settings.items() if name in self.arguments}
        groups = [{"params": [parameter], "lr": rate} for parameter, rate in zip(parameters, rates, strict=bool(rates))]
        run = Run(self._optimizer(parameters, groups, settings), parameters)
        self.used.append(run)
        return run

    def _optimizer(
        self, parameters: list[nn.Parameter], groups: list[dict[str, Any]], settings: Mapping[str, object]
    ) -> Optimizer:
        """Create an optimizer of the parameter groups, or of the parameters if there are no groups."""
        try:
            return self._call(groups or parameters, settings)
        except Exception:
            if not groups or inspect.isclass(self.subject):
                raise
        # A function may create the parameter groups itself, and accept only parameters. Split its groups afterwards.
        run = Run(self._call(parameters, settings), parameters)
        run.optimizer.param_groups[:] = [{**run.group(group["params"][0]), **group} for group in groups]
        return run.optimizer

    def _call(self, parameters: Sequence[object], settings: Mapping[str, object]) -> Optimizer:
        """Call the subject. Raise TypeError unless it returns an optimizer."""
        optimizer = self.subject(parameters, **{self.rate_name: RATE}, **settings)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"it returned {type(optimizer).__name__}, not a torch.optim.Optimizer")
        return optimizer

    def _first_run(self) -> tuple[Shapes, Run]:
        """Try shapes until an optimizer takes a step on them; return the shapes and the run."""
        for shapes in SHAPES[:-1]:
            with suppress(Exception):
                return shapes, self._run_after_step(shapes)
        with self.first_call():
            run = self._run_after_step(SHAPES[-1])
        return SHAPES[-1], run

    def _run_after_step(self, shapes: Shapes, **settings: object) -> Run:
        """Return a run with weights of these shapes after one step; initial weights and gradients are all ones."""
        ones = [torch.ones(shape) for shape in shapes]
        run = self.start(ones, **settings)
        run.step(ones)
        return run

    def _accepts_flag(self, flag: str) -> bool:
        """Return whether the optimizer takes a step with a flag, such as `fused`, on the CPU."""
        try:
            self._run_after_step(self.shapes, **{flag: True})
        except Exception:
            return False
        return True

    def _formula(self, run: Run) -> tuple[str, Formula | None, str]:
        """Return the name of the formula, the formula, and ""; without a formula, return "", None and the reason.

        The name of a function of the subject is "own". Raise `CannotCall` if the subject declares an unknown name.
        """
        name, group = getattr(self.subject, "formula", None), run.group(run.weights[0])
        if callable(name):
            return "own", name, ""
        # An optimizer that inherits its step from a class of PyTorch has the formula of this class.
        step = inspect.unwrap(type(run.optimizer).step)
        if name is None and step is inspect.unwrap(SGD.step):
            name = "sgd"
        if name is None and step in (inspect.unwrap(Adam.step), inspect.unwrap(AdamW.step)):
            name = "adamw" if isinstance(run.optimizer, AdamW) or group.get("decoupled_weight_decay") else "adam"
        if name is None:
            return "", None, UNKNOWN_FORMULA
        if name not in FORMULAS:
            names = ", ".join(FORMULAS)
            self.refuse(f"unknown formula {name!r} (choose from {names}, or pass a function)")
        missing = [setting for setting in ("betas", "eps") if name != "sgd" and setting not in group]
        if missing or group.get("amsgrad"):
            why = f"its groups have no {' and no '.join(missing)}" if missing else "amsgrad is on"
            return "", None, f"the formula {name!r} cannot be computed: {why}"
        return name, FORMULAS[name], ""


def bench(subject: Callable[..., object], directory: Path | None) -> Bench:
    """Return the bench of a class or a function; raise `CannotCall` if the suite cannot call it."""
    return Bench(subject)


# Most claims use these strategies.
CASES = {"seed": st.integers(0, 99), "scale": st.sampled_from((1.0, 1e-2, 1e-4))}
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
    """Return random weights and, for every step, random gradients with the standard deviation `scale`."""
    random = torch.Generator().manual_seed(seed)
    weights = [0.1 * torch.randn(shape, generator=random) for shape in bench.shapes]
    return weights, [[scale * torch.randn(weight.shape, generator=random) for weight in weights] for _ in range(steps)]


def take_steps(run: Run, steps: Sequence[Sequence[Tensor | None]], rates: Sequence[float] = ()) -> list[Tensor]:
    """Take steps, and return the final weights.

    Args:
        run: The run that takes the steps.
        steps: The gradients of every step.
        rates: The rate of every step; () for the rates of the groups.
    """
    weights = [weight.detach().clone() for weight in run.weights]
    for k, gradients in enumerate(steps):
        for group in run.optimizer.param_groups if rates else ():
            group["lr"] = rates[k]
        weights = run.step(gradients)
    return weights


def max_difference(one: Tensor, other: Tensor) -> str:
    """Format the largest difference of two tensors."""
    return f"{float((one - other).abs().max()):.3g}"


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    """Return whether two lists of tensors are bitwise equal."""
    return all(map(torch.equal, one, other))


def explain(
    bench: Bench, formula: Formula, actual: Tensor, start: Tensor, steps: list[Tensor], settings: Settings
) -> str:
    """Return "; it has ..." with the known mistakes that give the actual weight; "" if no mistake does.

    Args:
        bench: The bench.
        formula: The correct formula.
        actual: The weight after the steps.
        start: The initial weight.
        steps: The gradient of every step.
        settings: The settings of the parameter group in every step.
    """
    mistakes = {"the rate of the first step": formula(start, steps, [settings[0]] * len(settings))}
    mistakes["no weight decay"] = formula(start, steps, [{**step, "weight_decay": 0} for step in settings])
    for name, mistake in MISTAKES.get(bench.formula_name, {}).items():
        mistakes[name] = FORMULAS[bench.formula_name](start, steps, settings, **mistake)
    causes = [name for name, wrong in mistakes.items() if close(actual, wrong, start, len(settings))]
    return f"; it has {', or '.join(causes)}" if causes else ""


def step_fault(bench: Bench, run: Run, start: list[Tensor], steps: Steps, rates: Sequence[float]) -> tuple[str, str]:
    """Take steps, and return the difference of a weight from the formula, and its cause, as texts.

    Both texts are "" if all weights agree with the formula, or if there is no formula. An unknown cause is "".

    Args:
        bench: The bench.
        run: The run that takes the steps.
        start: The initial weights.
        steps: The gradients of every step.
        rates: The rate of every step.
    """
    if bench.formula is None:
        return "", ""
    groups = [{**run.group(weight)} for weight in run.weights]
    actual = take_steps(run, steps, rates if len({*rates}) > 1 else ())
    for i, first in enumerate(start):
        # The formula is computed in float64, with the settings in the parameter group of the optimizer.
        settings, gradients = [{**groups[i], "lr": rate} for rate in rates], [step[i].double() for step in steps]
        begin, weight = first.double(), actual[i].double()
        expected = bench.formula(begin, gradients, settings)
        if not close(weight, expected, begin, len(rates)):
            fault = (
                f"after {len(rates)} steps a weight of shape {[*first.shape]} is off by "
                f"{max_difference(weight, expected)}; the formula changes it by {max_difference(expected, begin)}, "
                f"the optimizer by {max_difference(weight, begin)}"
            )
            return fault, explain(bench, bench.formula, weight, begin, gradients, settings)
    return "", ""


@given(options=st.sampled_from(OPTIONS), steps=st.integers(1, STEPS), **CASES)
def falsify_formula(bench: Bench, options: dict[str, float], steps: int, seed: int, scale: float) -> None:
    # Without a formula, this claim is tried only if the subject declares one that cannot be computed.
    if bench.formula is None:
        raise SkipTest(f"{bench.why_no_formula}; write the settings into the groups, or pass a function as `formula`")
    start, gradients = draw_steps(bench, seed, scale, steps)
    try:
        run = bench.start(start, **(options if set(options) <= bench.arguments else {}))
    except ValueError:  # an optimizer may refuse these options together
        run = bench.start(start)
    fault, cause = step_fault(bench, run, start, gradients, [RATE] * steps)
    judge(not fault, fault, cause)


# `zero` is the index of the group with the rate 0.
@given(zero=st.integers(0, 1), **CASES)
def falsify_rate_of_each_group(bench: Bench, zero: int, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    same_rate = take_steps(bench.start(start, weight_decay=0.0), gradients)
    try:
        run = bench.start(start, [0.0 if i == zero else RATE for i in (0, 1)], weight_decay=0.0)
    except ValueError:  # an optimizer may refuse a rate of 0 when it is created
        run = bench.start(start, [RATE, RATE], weight_decay=0.0)
        run.group(run.weights[zero])["lr"] = 0.0
    actual = take_steps(run, gradients)
    cause = f", as with the rate {RATE} of the other group" if torch.equal(actual[zero], same_rate[zero]) else ""
    change = f"rate 0 in group {zero} changes its weight by {max_difference(actual[zero], start[zero])}"
    judge(torch.equal(actual[zero], start[zero]), change, cause)
    other = 1 - zero
    assert not torch.equal(actual[other], start[other]), f"rate {RATE} in group {other} does not change its weight"


@given(options=st.sampled_from(({}, {"momentum": 0.9})), **CASES)
def falsify_changed_rate(bench: Bench, options: dict[str, float], seed: int, scale: float) -> None:
    start, steps = draw_steps(bench, seed, scale, 2)
    rates = [RATE, 3 * RATE]
    constant, changed, other = (bench.start(start, **options) for _ in range(3))
    assert not equal(take_steps(changed, steps, rates), take_steps(constant, steps)), (
        f"a rate set to {rates[1]} in param_groups after a step with {rates[0]} changes nothing in the next step"
    )
    # If the steps do not follow the formula even with a constant rate, another claim fails.
    if not step_fault(bench, bench.start(start, **options), start, steps, [RATE, RATE])[0]:
        fault, cause = step_fault(bench, other, start, steps, rates)
        judge(not fault, f"with a rate of {rates[1]} in the second step, {fault}", cause)


@given(seed=st.integers(0, 99))
def falsify_decoupled_decay(bench: Bench, seed: int) -> None:
    start, _ = draw_steps(bench, seed, 1.0)
    run = bench.start(start, weight_decay=0.1)
    # With zero gradients, only the decay changes a weight.
    decays = [run.group(weight).get("weight_decay", 0.1) for weight in run.weights]
    actual = run.step([torch.zeros_like(weight) for weight in start])
    for weight, begin, decay in zip(actual, start, decays, strict=True):
        wrong = {"changes by the rate: the decay is added to the gradient": begin - RATE * begin.sign()}
        wrong |= {"changes by decay times weight, without the rate": begin * (1 - decay), "does not change": begin}
        causes = [f"; it {name}" for name, weights in wrong.items() if close(weight, weights, begin, 1)]
        expected = begin * (1 - RATE * decay)
        fault = (
            f"with zero gradient, rate {RATE} and decay {decay}, a weight changes by "
            f"{max_difference(weight, begin)}; rate times decay times weight is {max_difference(begin, expected)}"
        )
        judge(torch.allclose(weight, expected, rtol=1e-6, atol=0), fault, "".join(causes[:1]))


@given(before=st.sampled_from((0, 2)), **CASES)
def falsify_parameter_without_gradient(bench: Bench, before: int, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    run = bench.start(start, weight_decay=0.1, momentum=0.9)
    middle, state = take_steps(run, gradients[:before])[1], repr(run.optimizer.state.get(run.weights[1]) or {})
    end = take_steps(run, [[step[0], None] for step in gradients[before:]])[1]
    change = f"after {before} steps with a gradient, steps without a gradient change"
    assert torch.equal(end, middle), f"{change} a parameter by {max_difference(end, middle)}"
    after = repr(run.optimizer.state.get(run.weights[1]) or {})
    assert after == state, f"{change} the state from {state} to {after}"


@given(before=st.integers(1, 3), **CASES)
def falsify_restored_state(bench: Bench, before: int, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale, before + 3)
    run = bench.start(start, momentum=0.9)
    # The rate is not the rate of the constructor, so that the claim fails if the rate is not restored.
    middle = take_steps(run, gradients[:before], [3 * RATE] * before)
    restored, fresh = bench.start(middle, momentum=0.9), bench.start(middle, momentum=0.9)
    # Save to a file. Without a file, both optimizers could share objects, which would hide state that is not saved.
    with tempfile.TemporaryFile() as file:
        torch.save(run.optimizer.state_dict(), file)
        file.seek(0)
        restored.optimizer.load_state_dict(torch.load(file, weights_only=False))
    for k, gradient in enumerate(gradients[before:], 1):
        expected, actual, new = run.step(gradient), restored.step(gradient), fresh.step(gradient)
        cause = "; it is the step of a new optimizer, with the rate of the constructor" if equal(actual, new) else ""
        off = max(float((one - other).abs().max()) for one, other in zip(actual, expected, strict=True))
        judge(equal(actual, expected), f"step {k} after load_state_dict at step {before} is off by {off:.3g}", cause)


@given(**CASES)
def falsify_foreach_and_fused(bench: Bench, seed: int, scale: float) -> None:
    start, steps = draw_steps(bench, seed, scale)
    # The second parameter has no gradient in the first step, so it has counted fewer steps than the first one.
    late: list[Sequence[Tensor | None]] = [[steps[0][0], None], *steps[1:]]
    for flag in bench.flags:
        off, on = (take_steps(bench.start(start, weight_decay=0.1, **{flag: value}), late) for value in (False, True))
        for expected, actual, begin in zip(off, on, start, strict=True):
            change = f"with {flag}, a weight of shape {[*begin.shape]} changes by {max_difference(actual, begin)}"
            assert close(actual, expected, begin, STEPS), (
                f"{change}, without {flag} by {max_difference(expected, begin)}; the weights differ by "
                f"{max_difference(actual, expected)}"
            )


@given(**CASES)
def falsify_gradients_are_left(bench: Bench, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    run, reused = (bench.start(start, weight_decay=0.1, momentum=0.9) for _ in range(2))
    for k, step_gradients in enumerate(gradients, 1):
        expected, actual = run.step(step_gradients), reused.step(step_gradients, in_place=True)
        for weight, gradient in zip(run.weights, step_gradients, strict=True):
            assert weight.grad is not None and torch.equal(weight.grad, gradient), f"step {k} changes a gradient"
        assert equal(actual, expected), (
            f"step {k} differs if gradients are written in place: the state keeps a gradient"
        )


@given(**CASES)
def falsify_parameters_are_independent(bench: Bench, seed: int, scale: float) -> None:
    start, gradients = draw_steps(bench, seed, scale)
    in_order = take_steps(bench.start(start), gradients)
    reverse = take_steps(bench.start(start[::-1]), [gradient[::-1] for gradient in gradients])[::-1]
    for i, begin in enumerate(start):
        alone = take_steps(bench.start([begin]), [[gradient[i]] for gradient in gradients])[0]
        # Of the two parameters, the first comes before the other in `in_order`, and after the other in `reverse`.
        places = ("before", "after") if i == 0 else ("after", "before")
        for place, actual in zip(places, (in_order[i], reverse[i]), strict=True):
            change = f"a parameter that comes {place} another changes by {max_difference(actual, begin)}"
            assert close(actual, alone, begin, STEPS), f"{change}, as the only one by {max_difference(alone, begin)}"
