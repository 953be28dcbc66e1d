"""Create optimizers of the subject on small parameters, and find the features that it lacks."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from pv.suites.bench import CallableBench, parameters_of
from pv.suites.optimizer.formulas import FORMULAS, Formula

RATE = 0.01
NAMES = ("lr", "rate", "learning_rate")
SHAPES = (((4, 3), (5,)), ((4, 3), (3, 5)))  # some optimizers take matrices only
WRITE = """cannot call {name}: {why}. The suite passes a list of float32 parameters and a rate, and takes steps
without a closure on dense gradients. Write a function that adds the other arguments, and pass it:

    def make(parameters, lr=1e-3):
        return {name}(parameters, lr=lr, ...)

    make.formula = "adamw"  # or "sgd", "adam", a function (weight, gradients, settings) -> weight, or no such line"""
UNKNOWN_FORMULA = """it has a step of its own; say with its attribute `formula` which: "sgd", "adam", "adamw", \
or a function (weight, gradients, settings of each step) -> weight in float64"""
RATES = {
    torch.optim.Rprop: "the rate is only the size of the first step",
    torch.optim.ASGD: "a changed rate is used one step later",
}


@dataclass(eq=False)
class Run:
    """An optimizer and its parameters."""

    optimizer: Optimizer
    weights: list[nn.Parameter]

    def step(self, gradients: Sequence[Tensor | None], *, in_place: bool = False) -> list[Tensor]:
        """Take a step, with the same random numbers as every step, and return copies of the weights."""
        for weight, gradient in zip(self.weights, gradients, strict=True):
            # Loops clear gradients by writing zeros or by dropping them; an optimizer must not keep a reference.
            if in_place and weight.grad is not None and gradient is not None:
                weight.grad.copy_(gradient)
            else:
                weight.grad = None if gradient is None else gradient.clone()
        # Optimizers with stochastic rounding draw: the same numbers in every step make runs comparable.
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
    """A class or function that makes an optimizer of parameters and a rate.

    Its attributes are optional. formula: its name, or a function. decoupled, independent: True where the formula does
    not say so. features, not_claimed: as of all subjects.
    """

    write = WRITE

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        if not callable(make):
            raise self.cannot_call("it is not callable")
        self.arguments = {*parameters_of(make)}
        self.rate = next((name for name in NAMES if name in self.arguments), "")
        if not self.rate:
            raise self.cannot_call(f"none of its parameters is named {', '.join(NAMES)}")
        self.shapes, run = self._first_run()
        self.name, self.formula = self._formula(run)
        declared = getattr(make, "formula", None) is not None
        self.flags = [flag for flag in ("foreach", "fused") if flag in self.arguments and self._works(flag)]
        unknown = self.name if self.formula is None and not declared else ""
        decoupled = "adamw" in (self.name, getattr(make, "formula", "")) or getattr(make, "decoupled", False)
        decays = "weight_decay" in self.arguments or any(
            group.get("weight_decay") for group in run.optimizer.param_groups
        )
        self.set_features(
            {
                "formula": unknown,
                "independence": "" if getattr(make, "independent", False) else unknown,
                "decoupled": "" if decoupled and decays else "its weight decay is not known to be decoupled",
                "flags": "" if self.flags else "neither foreach nor fused is a parameter that works on the CPU",
                "rates": next((why for kind, why in RATES.items() if isinstance(run.optimizer, kind)), ""),
            }
        )

    def start(self, weights: Sequence[Tensor], rates: Sequence[float] = (), **settings: Any) -> Run:
        """Create an optimizer of copies of the weights.

        Args:
            weights: The initial weights; every one becomes a parameter.
            rates: The learning rate of every weight, one group per weight; without them, one group.
            **settings: Arguments of the optimizer; those that it does not take are left out.

        Returns:
            The optimizer with its parameters.
        """
        parameters = [nn.Parameter(weight.clone()) for weight in weights]
        settings = {name: value for name, value in settings.items() if name in self.arguments}
        rows = [{"params": [parameter], "lr": rate} for parameter, rate in zip(parameters, rates, strict=bool(rates))]
        run = Run(self._optimizer(parameters, rows, settings), parameters)
        self.used.append(run)
        return run

    def _optimizer(self, parameters: Any, rows: list[dict[str, Any]], settings: Mapping[str, Any]) -> Optimizer:
        try:
            return self._call(rows or parameters, settings)
        except Exception:
            if not rows or inspect.isclass(self.subject):
                raise
        run = Run(self._call(parameters, settings), parameters)  # the function makes the groups, so they are split
        run.optimizer.param_groups[:] = [{**run.group(row["params"][0]), **row} for row in rows]
        return run.optimizer

    def _call(self, parameters: Any, settings: Mapping[str, Any]) -> Optimizer:
        made = self.subject(parameters, **{self.rate: RATE}, **settings)
        if not isinstance(made, Optimizer):
            raise TypeError(f"it returned {type(made).__name__}, not a torch.optim.Optimizer")
        return made

    def _first_run(self) -> tuple[tuple[tuple[int, ...], ...], Run]:
        """Try shapes until an optimizer takes a step on them; return the shapes and the run."""
        for shapes in SHAPES:
            try:
                run = self.start([torch.ones(shape) for shape in shapes])
                run.step([torch.ones(shape) for shape in shapes])
                return shapes, run
            except Exception as error:
                problem = error
        raise self.cannot_call(f"{type(problem).__name__}: {problem}") from problem

    def _works(self, flag: str) -> bool:
        ones = [torch.ones(shape) for shape in self.shapes]
        try:
            self.start(ones, **dict[str, Any]({flag: True})).step(ones)
        except Exception:  # not on this device
            return False
        return True

    def _formula(self, run: Run) -> tuple[str, Formula | None]:
        """Return the name of the formula and the formula; instead of a name, why there is none."""
        name, group = getattr(self.subject, "formula", None), run.group(run.weights[0])
        if callable(name):
            return "own", name
        step = inspect.unwrap(type(run.optimizer).step)  # of a base class, where a subclass has none
        if name is None and step is inspect.unwrap(SGD.step):
            name = "sgd"
        if name is None and step in (inspect.unwrap(Adam.step), inspect.unwrap(AdamW.step)):
            name = "adamw" if isinstance(run.optimizer, AdamW) or group.get("decoupled_weight_decay") else "adam"
        if name is None:
            return UNKNOWN_FORMULA, None
        if name not in FORMULAS:
            names = ", ".join(FORMULAS)
            raise self.cannot_call(f"unknown formula {name!r} (choose from {names}, or pass a function)")
        unread = [part for part in ("betas", "eps") if name != "sgd" and part not in group]
        why = (
            f"its groups have no {' and no '.join(unread)}"
            if unread
            else "amsgrad is on"
            if group.get("amsgrad")
            else ""
        )
        return (f"the formula {name!r} cannot be computed: {why}", None) if why else (name, FORMULAS[name])


def bench(subject: object, directory: Path | None) -> Bench:
    """Return a bench of a class or a function; raise `CannotCall` with what to write for everything else."""
    return Bench(subject)
