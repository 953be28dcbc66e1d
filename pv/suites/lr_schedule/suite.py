"""The suite `lr-schedule`: the bench of a learning-rate schedule, and the claims.

The subject is a function of the step, or a function that creates a scheduler for an optimizer. Steps count from 0;
the first argument of a function of the step counts from its attribute `first`, if there is one.
"""

import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from pv.suites.bench import CallableBench, judge

PEAK, MINIMUM = 0.1, 0.02
"""The peak and the minimum of the learning rate that the suite passes to the subject."""
BASES = (PEAK, 0.3 * PEAK)
"""The base rates of two parameter groups."""
NAMES = {
    "warmup": ("warmup", "warmup_steps", "num_warmup_steps", "n_warmup", "warmup_iters", "warm_up"),
    "total": ("total", "total_steps", "num_training_steps", "max_steps", "num_steps", "max_iters", "T_max"),
    "peak": ("peak", "peak_lr", "peak_rate", "max_lr", "lr_max", "base_lr", "lr", "learning_rate", "rate"),
    "minimum": (
        "minimum",
        "min_lr",
        "eta_min",
        "lr_min",
        "min_rate",
        "floor",
        "min_factor",
        "min_ratio",
        "min_lr_ratio",
    ),
}
OPTIMIZERS = ("optimizer", "optim", "opt")
WRITE = """cannot call {name}: {why}. Write one of these functions, and pass it:

    def rate(step, warmup, total):  # the rate or factor of a step; rate.first = 1 if steps count from 1
        return ...

    def make(optimizer, warmup, total):  # a scheduler with step, state_dict and load_state_dict
        return {name}(optimizer, ...)

Leave out parameters that the schedule does not have; `peak` and `minimum` are optional. Other usual names are:
{names}"""
PERIODIC = "the cosine rises again after its end, as its library documents"


class ScheduledOptimizer:
    """A scheduler and its optimizer. The optimizer takes a step before every step of the scheduler.

    Args:
        make: Creates the scheduler of an optimizer.
        bases: The base rate of each parameter group.
    """

    def __init__(self, make: Callable[[Optimizer], LRScheduler], bases: Sequence[float]) -> None:
        groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": base} for base in bases]
        self.optimizer = torch.optim.SGD(groups, lr=bases[0], momentum=0.9)
        self.scheduler = make(self.optimizer)

    def rates(self) -> list[float]:
        """Return the current rate of every group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self) -> list[float]:
        """Take a step of the optimizer and of the scheduler, and return the new rates."""
        self.optimizer.step()
        self.scheduler.step()
        return self.rates()

    def restore(self, other: "ScheduledOptimizer") -> None:
        """Load the states of another optimizer and scheduler."""
        for name in ("optimizer", "scheduler"):
            getattr(self, name).load_state_dict(copy.deepcopy(getattr(other, name).state_dict()))


class Bench(CallableBench):
    """A function of the step, or a function that creates a scheduler for an optimizer.

    The subject may have the attributes `first`, the number of the first step, `features`, and `not_claimed`.
    """

    write, names = WRITE, NAMES

    def __init__(self, make: Callable[..., object]) -> None:
        super().__init__(make)
        parameters = dict(inspect.signature(make).parameters) if callable(make) else {}
        if not parameters:
            self.refuse("it is not a function of a step or of an optimizer")
        first, *rest = parameters
        self.arguments = self.roles_of({name: parameters[name] for name in rest})
        # With a warm-up, `T_max` may mean the steps of the decay instead of all steps, so it is not passed.
        if self.arguments["warmup"] and self.arguments["total"] == "T_max":
            self.arguments["total"] = ""
        if first in (*NAMES["warmup"], *NAMES["total"]):
            self.refuse(f"unknown parameter {first!r}")
        self.refuse_unknown({name: parameters[name] for name in rest}, self.arguments)
        self.creates_scheduler = first in OPTIMIZERS
        with self.first_call():
            self.rates(3, 20, 21)
        self.set_features(self._reasons(list(parameters.values())))

    def bind(self, warmup: int, total: int) -> Callable[..., Any]:
        """Return the subject with all arguments bound except the first one, which is the step or the optimizer."""
        values = {"warmup": warmup, "total": total, "peak": PEAK, "minimum": MINIMUM}
        return functools.partial(self.subject, **{name: values[key] for key, name in self.arguments.items() if name})

    def start(self, warmup: int, total: int, bases: Sequence[float] = BASES) -> ScheduledOptimizer:
        """Return a new scheduler for an optimizer with these base rates, one per group."""
        run = ScheduledOptimizer(self.bind(warmup, total), bases)
        self.used.append(run)
        return run

    def rates(self, warmup: int, total: int, steps: int) -> list[float]:
        """Return the rates of the first `steps` steps; fewer if the schedule raises ValueError after its end."""
        rates: list[float] = []
        try:
            for rate in self._rates(warmup, total):
                rates.append(rate)
                if len(rates) == steps:
                    break
        except ValueError:
            if not self.arguments["total"] or len(rates) < total:
                raise
        return rates

    def _rates(self, warmup: int, total: int) -> Iterator[float]:
        """Yield the rates of all steps, without end. With a scheduler, these are the rates of the first group."""
        if self.creates_scheduler:
            run = self.start(warmup, total)
            yield run.rates()[0]
            while True:
                yield run.step()[0]
        self.used.append(object())  # a report counts the elements of `used`
        for step in range(getattr(self.subject, "first", 0), 10**9):
            yield float(self.bind(warmup, total)(step))

    def _reasons(self, parameters: list[inspect.Parameter]) -> dict[str, str]:
        """Return a reason for every feature that the subject does not have, and "" for every other feature."""
        missing = {key: f"no parameter is named {', '.join(NAMES[key])}" for key in ("warmup", "total")}
        no_scheduler = "" if self.creates_scheduler else "it is a function of the step"
        stateful = self.creates_scheduler and hasattr(self.start(3, 20).scheduler, "load_state_dict")
        stops = self.arguments["total"] and len(self.rates(3, 20, 26)) < 26
        periodic = self.creates_scheduler and _is_periodic(self.start(3, 20).scheduler)
        return {
            **{key: "" if self.arguments[key] else why for key, why in missing.items()},
            "decay": "it restarts" if _restarts(getattr(self.subject, "__name__", ""), parameters) else "",
            "stay": PERIODIC if periodic else "it refuses steps after the planned end" if stops else "",
            "scheduler": no_scheduler or ("" if stateful else "it has no load_state_dict"),
            "groups": no_scheduler
            or (f"{self.arguments['peak']} is the peak of all groups" if self.arguments["peak"] else ""),
        }


def bench(subject: Callable[..., object], directory: Path | None) -> Bench:
    """Return the bench of a function or a class; raise `CannotCall` if the suite cannot call it."""
    return Bench(subject)


def _is_periodic(scheduler: object) -> bool:
    """Return whether a scheduler is or contains a cosine of PyTorch or transformers, which rises after its end."""
    if any(map(_is_periodic, getattr(scheduler, "_schedulers", ()))) or isinstance(scheduler, CosineAnnealingLR):
        return True
    functions = [getattr(function, "func", function) for function in getattr(scheduler, "lr_lambdas", ())]
    return any(
        f"{function.__module__}".startswith("transformers.") and "cosine" in function.__name__ for function in functions
    )


def _restarts(name: str, parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether the name of a schedule or its parameters say that it restarts.

    A schedule with at most one cycle, such as half a cosine, does not restart.
    """
    cycles = [parameter.default for parameter in parameters if "cycle" in parameter.name]
    has_one_cycle = all(isinstance(cycle, int | float) and cycle <= 1 for cycle in cycles)
    return not has_one_cycle or any(word in name.lower() for word in ("restart", "cyclic"))


STEPS_AFTER_END = 6
"""The number of steps after the planned end for which the claims compute rates."""
# Strategies for the number of warm-up steps and the number of decay steps.
PLANS = {"warmup": st.integers(1, 8), "decay": st.integers(10, 30)}


def planned_rates(bench: Bench, warmup: int, decay: int) -> tuple[int, int, list[float]]:
    """Return the planned number of steps, the first step with the largest rate, and the rates."""
    total = warmup + decay
    rates = bench.rates(warmup, total, total + STEPS_AFTER_END)
    return total, next(k for k, rate in enumerate(rates) if near(rate, max(rates))), rates


def near(one: float, other: float) -> bool:
    """Return whether two rates are equal up to rounding."""
    # Schedules compute in float64, so correct rates differ only by the order of operations.
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)


def excerpt(rates: list[float], at: int) -> str:
    """Format the rates around a step."""
    return ", ".join(f"{k}: {rates[k]:.6g}" for k in range(max(0, at - 2), min(len(rates), at + 3)))


def check_range(rates: list[float], plan: str) -> None:
    """Assert that all rates are finite and not negative."""
    for k, rate in enumerate(rates):
        assert math.isfinite(rate) and rate >= 0, f"{plan}, the rate is {rate} in step {k} ({excerpt(rates, k)})"


@given(**PLANS)
def falsify_range(bench: Bench, warmup: int, decay: int) -> None:
    total = warmup + decay
    check_range(bench.rates(warmup, total, total + STEPS_AFTER_END), f"with a warm-up of {warmup} of {total} steps")


@given(**PLANS)
def falsify_peak_after_warmup(bench: Bench, warmup: int, decay: int) -> None:
    total, peak, rates = planned_rates(bench, warmup, decay)
    fall = next((k for k in range(1, peak + 1) if rates[k] < rates[k - 1]), 0)
    assert not fall, f"the rate falls in step {fall} of {warmup} warm-up steps ({excerpt(rates, fall)})"
    relation = "one step late" if peak == warmup + 1 else "late" if peak > warmup else "early"
    # Both conventions are correct: the rate reaches the peak in the last step of the warm-up, or in the step after it.
    assert peak in (warmup - 1, warmup), (
        f"with a warm-up of {warmup} of {total} steps, the greatest rate is first reached in step {peak}, {relation} "
        f"({excerpt(rates, warmup)}); steps count from 0 unless the attribute `first` is 1"
    )
    if bench.creates_scheduler or bench.arguments["peak"]:
        assert near(rates[peak], PEAK), f"the greatest rate is {rates[peak]:.9g}; the peak is {PEAK}"


@given(**PLANS)
def falsify_decay(bench: Bench, warmup: int, decay: int) -> None:
    total, peak, rates = planned_rates(bench, warmup, decay)
    rise = next((k for k in range(peak + 1, total) if rates[k] > rates[k - 1] * (1 + 1e-9)), 0)
    assert not rise, (
        f"with {total} steps and the peak in step {peak}, the rate rises in step {rise} ({excerpt(rates, rise)})"
    )


@given(**PLANS)
def falsify_end(bench: Bench, warmup: int, decay: int) -> None:
    total, peak, rates = planned_rates(bench, warmup, decay)
    lowest = min(rates[peak:])
    first_lowest = next(k for k in range(peak, len(rates)) if near(rates[k], lowest))
    assert first_lowest <= total, (
        f"with {total} steps, the smallest rate comes in step {first_lowest}, after the end ({excerpt(rates, total)})"
    )
    # The smallest rate may be reached at the last planned step, or at the next one, which some schedules refuse.
    final = rates[min(total, len(rates) - 1)]
    assert near(final, lowest) or near(rates[total - 1], lowest), (
        f"with {total} steps, the smallest rate {lowest:.6g} comes in step {first_lowest}; the last is {final:.6g}"
    )
    # The minimum is a rate in some libraries, a factor of the peak in others.
    name, as_factor = bench.arguments["minimum"], MINIMUM * max(rates)
    assert not name or near(lowest, MINIMUM) or near(lowest, as_factor), (
        f"the smallest rate is {lowest:.6g}; {name} is {MINIMUM}, or as a factor of the peak {as_factor:.6g}"
    )


@given(**PLANS)
def falsify_rate_after_the_end(bench: Bench, warmup: int, decay: int) -> None:
    total, _, rates = planned_rates(bench, warmup, decay)
    change = next((k for k in range(total + 1, len(rates)) if not near(rates[k], rates[total])), 0)
    assert not change, f"after the planned {total} steps, the rate changes in step {change} ({excerpt(rates, change)})"


@given(total=st.integers(10, 30))
def falsify_edges(bench: Bench, total: int) -> None:
    plans = [(0, total, f"without warm-up of {total} steps")]
    plans += [(total, total, f"with a warm-up of {total} of {total} steps")] if bench.arguments["total"] else []
    for warmup, planned, name in plans:
        try:
            rates = bench.rates(warmup, planned, planned + STEPS_AFTER_END)
        except ZeroDivisionError as error:
            raise AssertionError(f"{name}, the schedule divides by zero") from error
        except ValueError:  # a schedule may refuse such a plan
            continue
        check_range(rates, name)
        assert warmup or near(rates[0], max(rates)), f"{name}, rate 0 is not the greatest rate ({excerpt(rates, 0)})"


@given(at=st.integers(0, 40), **PLANS)
def falsify_restored(bench: Bench, at: int, warmup: int, decay: int) -> None:
    total = warmup + decay
    at = min(at, total - 4)  # the rates of four steps are compared
    # `fresh` shows the rates of a schedule whose position was not restored.
    run, restored, fresh = (bench.start(warmup, total) for _ in range(3))
    for _ in range(at):
        run.step()
    restored.restore(run)
    for k in range(at, at + 4):
        pairs = list(zip(run.rates(), restored.rates(), fresh.rates(), strict=True))
        for group, (expected, actual, new) in enumerate(pairs):
            cause = f"; {new:.6g} is the rate of a schedule that starts anew" if near(actual, new) else ""
            group_name = f"restored in step {at} of {total}, group {group}"
            judge(near(actual, expected), f"{group_name} has rate {actual:.6g} in step {k}, not {expected:.6g}", cause)
        for scheduled in (run, restored, fresh):
            scheduled.step()


@given(**PLANS)
def falsify_each_group(bench: Bench, warmup: int, decay: int) -> None:
    total = warmup + decay
    run, alone = bench.start(warmup, total), bench.start(warmup, total, BASES[1:])
    for k in range(total):
        (first, second), (alone_rate,) = run.rates(), alone.rates()
        cause = "; the second has the rate of the first group" if near(first, second) else ""
        fault = (
            f"in step {k} the rates of groups that start with {BASES[0]} and {BASES[1]:.6g} are {first:.6g} and "
            f"{second:.6g}; without the first group, the second has {alone_rate:.6g}"
        )
        # Both are correct: every group has its own schedule, or one factor multiplies the base rates of all groups.
        judge(near(second, alone_rate) or near(second, first * BASES[1] / BASES[0]), fault, cause)
        run.step()
        alone.step()


@given(**PLANS)
def falsify_function_of_the_step(bench: Bench, warmup: int, decay: int) -> None:
    total = warmup + decay
    rates = bench.rates(warmup, total, total)
    # If schedulers share their position, the rates change when two schedulers step in turn. If a function counts its
    # calls, the rates change when the function is called in the reverse order of the steps.
    if bench.creates_scheduler:
        run, other = bench.start(warmup, total), bench.start(warmup, total)
        actual = [run.rates()[0]]
        while len(actual) < total:
            other.step()
            actual.append(run.step()[0])
    else:
        first, rate = getattr(bench.subject, "first", 0), bench.bind(warmup, total)
        actual = [float(rate(step)) for step in reversed(range(first, first + total))][::-1]
    wrong = next((k for k in range(total) if not near(actual[k], rates[k])), -1)
    other_case = "beside another schedule" if bench.creates_scheduler else "in calls from the last step to the first"
    assert wrong < 0, f"step {wrong} has the rate {rates[wrong]:.6g}, but {actual[wrong]:.6g} {other_case}"
