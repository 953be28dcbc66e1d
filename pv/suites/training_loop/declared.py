"""Refuses an adapter that contradicts itself, or whose run shows what it declares to be missing."""

from collections.abc import Iterator
from typing import Any

from pv.errors import PvError
from pv.suites.training_loop.plain import lacked
from pv.suites.training_loop.run import Run

LOGGED = ("loss", "rate", "norm")
PARTS = {
    "network": ("network", "logits", "tokens", "frozen"),
    "network_optimizer": ("network_optimizer",),
    "network_evaluation": ("evaluate_network",),
    "network_loss": ("network_loss",),
    "checkpointing": ("network_loss",),
    "autocast": ("network_loss",),
    "end": ("end",),
    "newest": ("newest",),
}
"""The attributes that an adapter needs for a feature in `has`."""


class Contradiction(PvError):
    """An adapter whose declarations cannot all be true; the text names them."""


def refuse_contradictions(trainer: Any) -> None:
    """Raise `Contradiction` if a feature is both there and missing, or if a part of it is not there."""
    if problems := [*_own(trainer)]:
        raise Contradiction(f"{type(trainer).__qualname__} contradicts itself: {'; '.join(problems)}")


def _own(trainer: Any) -> Iterator[str]:
    has, missing, logs = getattr(trainer, "has", ()), lacked(trainer), getattr(trainer, "logged", ())
    for name in sorted({*has} & missing.keys()):
        yield f"`has` names {name!r}, and so does `{_where(trainer, name)}`"
    if {"epochs", "max_steps"} <= missing.keys():
        yield "neither `epochs` nor `max_steps` ends a run"
    for name in logs:
        if name not in LOGGED:
            yield f"`logged` names an unknown number {name!r}: expected loss, rate or norm"
        elif name in missing:
            yield f"`logged` names {name!r}, and so does `{_where(trainer, name)}`"
    for name in has:
        if absent := [each for each in PARTS.get(name, ()) if getattr(trainer, each, None) is None]:
            yield f"`has` names {name!r}, and there is no `{'`, no `'.join(absent)}`"


def _where(trainer: Any, name: str) -> str:
    return "without" if name in getattr(trainer, "without", ()) else "lacks"


def refuse_seen(trainer: Any, run: Run) -> None:
    """Raise `Contradiction` if a run reports something that the adapter does not declare, or declares to be missing."""
    missing, has = lacked(trainer), getattr(trainer, "has", ())
    reported = {name: any(name in row for row in run.logs) for name in LOGGED}
    reported |= {"evaluate": bool(run.evaluations), "save": bool(run.checkpoints), "events": bool(run.events)}
    rare = {"best_step": run.best is not None, "best_model": bool(run.best_weights), "average": bool(run.average)}
    problems = [
        f"the simplest run reports `{name}`, which `{_where(trainer, name)}` names ({missing[name]})"
        for name, seen in reported.items()
        if seen and name in missing
    ]
    problems += [
        f"the simplest run reports `{name}`, which `has` does not name"
        for name, seen in rare.items()
        if seen and name not in has and name not in missing
    ]
    if problems:
        hint = "leave it out of the report, or declare it, so that its claims are tried"
        raise Contradiction(f"{type(trainer).__qualname__} contradicts itself: {'; '.join(problems)}; {hint}")
