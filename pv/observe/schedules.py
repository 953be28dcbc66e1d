"""Records learning rate schedules: the planned number of advances, and every advance.

The schedule classes of torch and their subclasses are observed. A schedule inside another one, as in `SequentialLR`, is
recorded as nested, so that only the outer schedule counts as a schedule of an optimizer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import frames
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

PLANNED = ("T_max", "total_steps", "total_iters")
"""Attributes of the schedules of torch that hold a planned number of advances. An advance is a call of `step()`."""


def rates_of(groups: Iterable[dict[str, Any]]) -> object:
    """Return the learning rates of parameter groups: a list of floats, or a `Late` list if one rate is a tensor."""
    rates = [group["lr"] for group in groups if "lr" in group]
    if any(isinstance(rate, Tensor) for rate in rates):
        return Late([torch.as_tensor(rate).detach().clone() for rate in rates], lambda *lists: [x[0] for x in lists])
    return [float(rate) for rate in rates]


class Schedules:
    """The learning rate schedules of one process.

    Args:
        observer: The observer of this process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.depth = 0
        """Number of running calls of `step`: the outer schedule calls `step` of a nested one."""
        self.initial_depth = 0
        """Number of running calls of `_initial_step`, in which constructors of schedules set the initial rate."""
        self._numbers: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self._returned: set[int] = set()
        """Numbers of the schedules that `new_lambdas` has returned."""

    def number_of(self, schedule: object) -> int:
        """Return the number of a schedule in the trace.

        Add a `scheduler` event for a new schedule, and a `nested_scheduler` event for each schedule inside it.
        """
        if schedule in self._numbers:
            return self._numbers[schedule]
        observer = self.observer
        number = self._numbers[schedule] = observer.number()
        for part in getattr(schedule, "_schedulers", ()):
            observer.add("nested_scheduler", scheduler=self.number_of(part), within=number)
        # Compare parameter groups, not optimizers: the groups of a wrapper, as in accelerate, are the same objects.
        groups = getattr(getattr(schedule, "optimizer", None), "param_groups", ())
        optimizers = [
            state.number
            for optimizer, state in observer.optimizers.items()
            if any(a is b for a in optimizer.param_groups for b in groups)
        ]
        # A list, or a Counter in `MultiStepLR`. `SequentialLR` has only the private attribute.
        milestones = getattr(schedule, "milestones", getattr(schedule, "_milestones", None))
        gamma = getattr(schedule, "gamma", None)
        observer.add(
            "scheduler",
            scheduler=number,
            kind=type(schedule).__name__,
            optimizers=optimizers,
            planned=_planned(schedule),
            milestones=[m for m in milestones if isinstance(m, int)] if milestones is not None else [],
            gamma=gamma if isinstance(gamma, float) else None,
            mode=str(getattr(schedule, "mode", "")),
            rates=rates_of(groups),
            base_rates=[float(rate) for rate in getattr(schedule, "base_lrs", ())],
            at=observer.at(),
        )
        return number

    def new_lambdas(self) -> dict[int, list[Callable[[int], Any]]]:
        """Return, by number of a schedule, the first four functions of each `LambdaLR` that was not returned before.

        Equal functions are returned once. Subclasses of `LambdaLR` are left out.
        """
        functions = {}
        for schedule, number in list(self._numbers.items()):
            if type(schedule) is torch.optim.lr_scheduler.LambdaLR and number not in self._returned:
                self._returned.add(number)
                functions[number] = list(dict.fromkeys(schedule.lr_lambdas))[:4]
        return functions

    def record_step(self, schedule: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Record an advance of a schedule after `step` has returned. A call by the constructor is no advance.

        Args:
            schedule: The schedule.
            args: Positional arguments of `step`.
            kwargs: Keyword arguments of `step`.
        """
        number = self.number_of(schedule)
        if self.initial_depth:
            return
        value = args[0] if args else kwargs.get("metrics")
        self.observer.add(
            "schedule",
            scheduler=number,
            explicit=bool(args or kwargs),  # whether the script passes an epoch or a metric
            epoch=getattr(schedule, "last_epoch", None),
            metric=_number(value) if type(schedule).__name__ == "ReduceLROnPlateau" else None,
            at=self.observer.at(),
        )


def _planned(schedule: object) -> dict[str, int]:
    """Return the planned numbers of advances of a schedule, by the name of the attribute or keyword."""
    planned = {name: getattr(schedule, name, None) for name in PLANNED}
    # Schedules of transformers are `LambdaLR` with a `functools.partial`, whose keywords include the number of steps.
    for function in getattr(schedule, "lr_lambdas", None) or ():
        for name, value in (getattr(function, "keywords", None) or {}).items():
            if name == "num_training_steps":
                planned[name] = value
    return {name: value for name, value in planned.items() if isinstance(value, int)}


def _number(value: object) -> object:
    """Return a number or a tensor of one element as the value of a field of an event; None for another object."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return Late([value.detach().clone()], lambda numbers: numbers[0])
    return float(value) if isinstance(value, (int, float)) or hasattr(value, "__float__") else None


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the schedules of `torch.optim.lr_scheduler`.

    Args:
        observer: Returns the observer of this process.
    """

    def wrap_step(original: Callable[..., object]) -> Callable[..., object]:
        def step(self: object, *args: object, **kwargs: object) -> object:
            active = observer()
            schedules = active.schedules
            schedules.depth += 1
            try:
                result = original(self, *args, **kwargs)
            finally:
                schedules.depth -= 1
            if not schedules.depth and active.is_active():
                with active.observing("schedule"):
                    schedules.record_step(self, args, kwargs)
            return result

        return step

    def wrap_initial_step(original: Callable[..., object]) -> Callable[..., object]:
        """Wrap `_initial_step`: a constructor calls `step` in it to set the initial rate, which is not an advance."""

        def initial_step(self: object) -> object:
            schedules = observer().schedules
            schedules.initial_depth += 1
            try:
                return original(self)
            finally:
                schedules.initial_depth -= 1

        return initial_step

    module = torch.optim.lr_scheduler
    for schedule in list(vars(module).values()):
        # Wrap every class that defines `step`: most schedules inherit it, but some override it.
        if isinstance(schedule, type) and "step" in vars(schedule) and schedule.__module__ == module.__name__:
            frames.wrap(schedule, "step", wrap_step)
    frames.wrap(module.LRScheduler, "_initial_step", wrap_initial_step)  # private
