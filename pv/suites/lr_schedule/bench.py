"""Read the rates of a schedule, a function of the step or a scheduler, and find the features that it lacks."""

import copy
import functools
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from pv.suites.bench import CallableBench

PEAK, LEAST = 0.1, 0.02
# Two groups with different rates: a scheduler must keep their ratio.
BASES = (PEAK, 0.3 * PEAK)
NAMES = {
    "warmup": ("warmup", "warmup_steps", "num_warmup_steps", "n_warmup", "warmup_iters", "warm_up"),
    "total": ("total", "total_steps", "num_training_steps", "max_steps", "num_steps", "max_iters", "T_max"),
    "peak": ("peak", "peak_lr", "peak_rate", "max_lr", "lr_max", "base_lr", "lr", "learning_rate", "rate"),
    "least": ("minimum", "min_lr", "eta_min", "lr_min", "min_rate", "floor", "min_factor", "min_ratio", "min_lr_ratio"),
}
OPEN = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
OPTIMIZERS = ("optimizer", "optim", "opt")
WRITE = """cannot call {name}: {why}. Write one of these functions, and pass it:

    def rate(step, warmup, total):  # the rate or factor of a step; rate.first = 1 if steps count from 1
        return ...

    def make(optimizer, warmup, total):  # a scheduler with step, state_dict and load_state_dict
        return {name}(optimizer, ...)

Leave out what it does not have; `peak` and `minimum` are optional. Of each, other names are known, too:
{names}"""
PERIODIC = "the cosine goes on and rises again, as its library has it"


class Scheduled:
    """A scheduler and its optimizer, which takes a step before each of its own."""

    def __init__(self, make: Any, bases: Sequence[float]) -> None:
        groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": base} for base in bases]
        self.optimizer = torch.optim.SGD(groups, lr=bases[0], momentum=0.9)
        self.scheduler = make(self.optimizer)

    def rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self) -> list[float]:
        self.optimizer.step()
        self.scheduler.step()
        return self.rates()

    def restore(self, other: "Scheduled") -> None:
        for name in ("optimizer", "scheduler"):
            getattr(self, name).load_state_dict(copy.deepcopy(getattr(other, name).state_dict()))


class Bench(CallableBench):
    """A function of a step, or one that makes a scheduler of an optimizer.

    Its attribute `first`, the number of the first step, is optional, and so are `features` and `not_claimed`.
    """

    write = WRITE
    names: ClassVar = {"minimum" if role == "least" else role: usual for role, usual in NAMES.items()}

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        parameters = list(inspect.signature(make).parameters.values()) if callable(make) else []
        if not parameters:
            raise self.cannot_call("it is not a function of a step or of an optimizer")
        names = [each.name for each in parameters[1:]]
        self.arguments = {key: next((n for n in known if n in names), "") for key, known in NAMES.items()}
        if self.arguments["warmup"] and self.arguments["total"] == "T_max":  # it may leave out the warm-up
            self.arguments["total"] = ""
        needed = [
            parameter.name
            for parameter in parameters[1:]
            if parameter.default is parameter.empty and parameter.kind not in OPEN
        ]
        unknown = [name for name in needed if name not in self.arguments.values()]
        if parameters[0].name in (*NAMES["warmup"], *NAMES["total"]):
            unknown = [parameters[0].name]
        if unknown:
            raise self.cannot_call(f"unknown parameter {unknown[0]!r}")
        self.schedules = parameters[0].name in OPTIMIZERS
        try:
            self.rates(3, 20, 21)
        except Exception as error:
            raise self.cannot_call(f"{type(error).__name__}: {error}") from error
        self.set_features(self._reasons(parameters))

    def bind(self, warmup: int, total: int) -> Any:
        """Return the subject with its arguments but the first."""
        values = {"warmup": warmup, "total": total, "peak": PEAK, "least": LEAST}
        return functools.partial(self.subject, **{name: values[key] for key, name in self.arguments.items() if name})

    def scheduled(self, warmup: int, total: int, bases: Sequence[float] = BASES) -> Scheduled:
        run = Scheduled(self.bind(warmup, total), bases)
        self.used.append(run)
        return run

    def rates(self, warmup: int, total: int, steps: int) -> list[float]:
        """Return the rates of the first steps, fewer if ValueError is raised for steps after the planned end."""
        rates: list[float] = []
        try:
            for rate in self._rates(warmup, total):
                rates.append(rate)
                if len(rates) == steps:
                    break
        # Some schedules refuse steps after their end, which is allowed.
        except ValueError:
            if not self.arguments["total"] or len(rates) < total:
                raise
        return rates

    def _rates(self, warmup: int, total: int) -> Iterator[float]:
        if self.schedules:
            run = self.scheduled(warmup, total)
            yield run.rates()[0]
            while True:
                yield run.step()[0]
        self.used.append(object())
        for step in range(getattr(self.subject, "first", 0), 10**9):
            yield float(self.bind(warmup, total)(step))

    def _reasons(self, parameters: list[inspect.Parameter]) -> dict[str, str]:
        """Return the reason of every missing feature; "" for a feature that is there."""
        missing = {key: f"no parameter is named {', '.join(NAMES[key])}" for key in ("warmup", "total")}
        stateless = "" if self.schedules else "it is a function of the step"
        stateful = self.schedules and hasattr(self.scheduled(3, 20).scheduler, "load_state_dict")
        stops = self.arguments["total"] and len(self.rates(3, 20, 26)) < 26
        periodic = self.schedules and _periodic(self.scheduled(3, 20).scheduler)
        return {
            **{key: "" if self.arguments[key] else why for key, why in missing.items()},
            "decay": "it restarts" if _restarts(getattr(self.subject, "__name__", ""), parameters) else "",
            "stay": PERIODIC if periodic else "it refuses steps after the planned ones" if stops else "",
            "scheduler": stateless or ("" if stateful else "it has no load_state_dict"),
            "groups": stateless
            or (f"{self.arguments['peak']} is that of all groups" if self.arguments["peak"] else ""),
        }


def bench(subject: object, directory: Path | None) -> Bench:
    """Return a bench of a function or a class; raise `CannotCall` with what to write for everything else."""
    return Bench(subject)


def _periodic(scheduler: object) -> bool:
    """Return whether a scheduler is, or has, a cosine of PyTorch or transformers, which goes on after its end."""
    if any(map(_periodic, getattr(scheduler, "_schedulers", ()))) or isinstance(scheduler, CosineAnnealingLR):
        return True
    functions = [getattr(function, "func", function) for function in getattr(scheduler, "lr_lambdas", ())]
    return any(
        f"{function.__module__}".startswith("transformers.") and "cosine" in function.__name__ for function in functions
    )


def _restarts(name: str, parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether names say that the rate rises again; half a cycle or one is not a restart."""
    cycles = [parameter.default for parameter in parameters if "cycle" in parameter.name]
    once = all(isinstance(cycle, int | float) and cycle <= 1 for cycle in cycles)
    return not once or any(word in name.lower() for word in ("restart", "cyclic"))
