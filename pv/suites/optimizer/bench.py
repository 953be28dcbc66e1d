"""Makes optimizers of a subject on small parameters, and says which claims it makes."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pv.errors import PvError
from pv.suites.optimizer.formulas import FORMULAS, Formula

RATE = 0.01
NAMES = ("lr", "rate", "learning_rate")
WRITE = """cannot drive {name}: {why}. The suite passes a list of float32 parameters and a rate, and takes a step
without a closure on dense gradients. Write a function that adds the other arguments, and pass it:

    def make(parameters, lr=1e-3):
        return {name}(parameters, lr=lr, ...)

    make.formula = "adamw"  # or "sgd", "adam", a function (weight, gradients, settings) -> weight; leave out if unknown"""
UNKNOWN = """it has a step of its own; set its attribute `formula` to "sgd", "adam", "adamw", or a function \
(weight, gradients, settings of each step) -> weight in float64"""
RATES = {
    torch.optim.Rprop: "the rate is only the size of the first step",
    torch.optim.ASGD: "a changed rate is used one step later",
}


class NotDriven(PvError, TypeError):
    """A subject that the suite cannot drive; the text says what to write."""


@dataclass(eq=False)
class Run:
    """An optimizer and its parameters."""

    optimizer: torch.optim.Optimizer
    weights: list[nn.Parameter]

    def step(self, gradients: Sequence[Tensor | None]) -> "Run":
        """Take a step with copies of these gradients."""
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = None if gradient is None else gradient.clone()
        self.optimizer.step()
        return self

    def values(self) -> list[Tensor]:
        return [each.detach().clone() for each in self.weights]


class Bench:
    """A class or function that makes an optimizer of parameters and a rate."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.used: list[Run] = []
        self.arguments = self._arguments()
        self.shapes, optimizer = self._tried()
        self.group: Mapping[str, Any] = optimizer.param_groups[0]
        self.name, self.formula = self._formula(optimizer)
        decays = "weight_decay" in self.arguments or self.group.get("weight_decay")
        decoupled = self.name == "adamw" or getattr(make, "decoupled", False)
        self.flags = [flag for flag in ("foreach", "fused") if flag in self.arguments and self._works(flag)]
        reasons = {
            "formula": self.name if self.formula is None else "",
            "independence": self.name if self.formula is None and not getattr(make, "independent", False) else "",
            "decoupled": "" if decoupled and decays else "no decoupled weight decay is known",
            "flags": "" if self.flags else "it takes neither foreach nor fused on this device",
            "rates": next((why for kind, why in RATES.items() if isinstance(optimizer, kind)), ""),
        }
        self.lacks = {name: why for name, why in reasons.items() if why} | getattr(make, "lacks", {})

    def missing(self, claim: str, needs: tuple[str, ...]) -> str:
        """Return why the subject does not make a claim; "" if it does."""
        lacking = [f"no {feature}: {self.lacks[feature]}" for feature in needs if feature in self.lacks]
        return "; ".join([*lacking, *filter(None, [getattr(self.make, "not_claimed", {}).get(claim)])])

    def start(self, weights: Sequence[Tensor], rates: float | Sequence[float] = RATE, **settings: Any) -> Run:
        """Return an optimizer of copies of the weights; several rates: of a parameter group for each weight."""
        parameters = [nn.Parameter(each.clone()) for each in weights]
        settings = {name: value for name, value in settings.items() if name in self.arguments}
        if isinstance(rates, float):
            self.used.append(Run(self._call(parameters, rates, settings), parameters))
        else:
            rows = [{"params": [each], "lr": rate} for each, rate in zip(parameters, rates, strict=True)]
            self.used.append(Run(self._grouped(parameters, rows, settings), parameters))
        return self.used[-1]

    def _grouped(self, parameters: Any, rows: list[dict[str, Any]], settings: Any) -> torch.optim.Optimizer:
        try:
            return self._call(rows, RATE, settings)
        except Exception:
            if inspect.isclass(self.make):
                raise
        optimizer = self._call(parameters, RATE, settings)  # the function makes the groups, so they are split
        optimizer.param_groups[:] = [{**optimizer.param_groups[0], **row} for row in rows]
        return optimizer

    def _call(self, parameters: Any, rate: float, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
        made = self.make(parameters, **{self.rate: rate}, **settings)
        if not isinstance(made, torch.optim.Optimizer):
            raise TypeError(f"it returned {type(made).__name__}, not a torch.optim.Optimizer")
        return made

    def _arguments(self) -> list[str]:
        """Return the names of the parameters of the subject, and keep that of the rate."""
        if not callable(self.make):
            raise self._not_driven("it cannot be called")
        arguments = list(inspect.signature(self.make).parameters)
        self.rate = next((name for name in NAMES if name in arguments), "")
        if not self.rate:
            raise self._not_driven(f"none of its parameters is named {', '.join(NAMES)}")
        return arguments

    def _tried(self) -> tuple[tuple[tuple[int, ...], ...], torch.optim.Optimizer]:
        """Return shapes on which an optimizer takes a step, which may be matrices only, and the optimizer."""
        for shapes in (((4, 3), (5,)), ((4, 3), (3, 5))):
            try:
                run = self.start([torch.ones(shape) for shape in shapes])
                return shapes, run.step([torch.ones(shape) for shape in shapes]).optimizer
            except Exception as error:
                problem = error
        raise self._not_driven(f"{type(problem).__name__}: {problem}") from problem

    def _works(self, flag: str) -> bool:
        try:
            ones = [torch.ones(shape) for shape in self.shapes]
            self.start(ones, **{flag: True}).step(ones)
        except Exception:  # not on this device
            return False
        return True

    def _formula(self, optimizer: torch.optim.Optimizer) -> tuple[str, Formula | None]:
        """Return the name of the formula and the formula; instead of a name, why there is none."""
        given = getattr(self.make, "formula", None)
        if given is not None and not isinstance(given, str):
            return "own", given
        step = inspect.unwrap(type(optimizer).step)
        if given is None and step is inspect.unwrap(torch.optim.SGD.step):
            given = "sgd"
        if given is None and step in (inspect.unwrap(torch.optim.Adam.step), inspect.unwrap(torch.optim.AdamW.step)):
            coupled = type(optimizer).mro().count(torch.optim.AdamW) == 0
            given = "adam" if coupled and not self.group.get("decoupled_weight_decay") else "adamw"
        if given not in FORMULAS:
            return UNKNOWN if given is None else f"unknown formula {given!r}", None
        unread = [name for name in ("betas", "eps") if given != "sgd" and name not in self.group]
        unread += ["amsgrad = False"] if self.group.get("amsgrad") else []
        return (f"its groups have no {', '.join(unread)}", None) if unread else (given, FORMULAS[given])

    def _not_driven(self, why: str) -> NotDriven:
        return NotDriven(WRITE.format(name=getattr(self.make, "__qualname__", None) or repr(self.make), why=why))


def bench(subject: Any, directory: Path | None) -> Bench:
    """Return a bench of a class or a function; raise `NotDriven` with what to write for everything else."""
    return Bench(subject)
