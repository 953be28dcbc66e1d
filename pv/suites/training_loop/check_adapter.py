"""Refuses an adapter with a mistake in its declarations, and one whose run shows a feature that it declares missing."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pv.errors import PvError
from pv.suites.bench import name_of
from pv.suites.training_loop.features import (
    LOGGED,
    OLD_NAMES,
    declared_features,
    missing_features,
    old_contradictions,
    old_names_notice,
)
from pv.suites.training_loop.job import FEATURES
from pv.suites.training_loop.run import Run

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
"""The attributes that an adapter needs for a feature."""
VALUES = {
    "features": "a dictionary of features to True, or to the reason why the loop does not have it",
    "not_claimed": "a dictionary of ids of claims to reasons",
    "tolerance": "a number",
    "tokens": "a sequence of ids",
    "frozen": "a sequence of patterns of names",
    "tied": "a sequence of pairs of names",
    "end": "the id of a token",
    "lacks": "a dictionary of features to reasons",
    "has": "a sequence of features",
    "without": "a sequence of features",
    "logged": "a sequence of `loss`, `rate` and `norm`",
}
"""The attributes of an adapter that are not methods."""


class NoAdapter(PvError, TypeError):
    """A subject that is no adapter, or an adapter with an invalid attribute; the text says what to write."""


class Contradiction(PvError):
    """An adapter whose declarations cannot all be true; the text names them."""


def check_adapter(trainer: Any) -> None:
    """Check the declarations of an adapter before anything is run.

    Args:
        trainer: The adapter.

    Raises:
        NoAdapter: A value is missing or of another type, or a feature is unknown: it would be ignored silently.
        Contradiction: A feature needs an attribute that the adapter does not have, or no feature ends a run.

    Warns:
        FutureWarning: The adapter uses names of version 0.2. The text says what to write.
    """
    for attribute in VALUES:
        _check_value(trainer, attribute)
    for attribute in ("features", *OLD_NAMES[:-1]):
        for feature in getattr(trainer, attribute, ()):
            if feature not in FEATURES:
                near = get_close_matches(feature, FEATURES, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(FEATURES))}"
                place = f"{name_of(type(trainer))}.{attribute}"
                raise NoAdapter(f"{place} names an unknown feature {feature!r}; {hint}")
    if problems := [*old_contradictions(trainer), *_incomplete(trainer)]:
        raise Contradiction(f"{type(trainer).__qualname__} contradicts itself: {'; '.join(problems)}")
    if notice := old_names_notice(trainer):
        warnings.warn(notice, FutureWarning, stacklevel=2)


def _check_value(trainer: Any, attribute: str) -> None:
    place, expected = f"{name_of(type(trainer))}.{attribute}", VALUES[attribute]
    if callable(inspect.getattr_static(trainer, attribute, None)):
        raise NoAdapter(f"{place} must be {expected}, it is a method: write it as an attribute or property")
    if attribute in ("features", "tolerance") and not hasattr(trainer, attribute) and not hasattr(trainer, "lacks"):
        raise NoAdapter(f"missing attribute {place}: expected {expected}")
    # A set or tuple of names, as the old attributes were, would otherwise fail with the message of `dict`.
    if attribute == "features":
        features = getattr(trainer, attribute, {})
        if not isinstance(features, Mapping):
            raise NoAdapter(f"invalid {place} {features!r}: expected {expected}")
        for feature, value in features.items():
            if not isinstance(value, bool) and not (isinstance(value, str) and value):
                raise NoAdapter(f"invalid {place}[{feature!r}] {value!r}: expected True, or a reason as text")
    if attribute in ("has", "without") and isinstance(value := getattr(trainer, attribute, ()), str):
        raise NoAdapter(f"invalid {place} {value!r}: expected {expected}, such as ({value!r},)")


def _incomplete(trainer: Any) -> Iterator[str]:
    declared = declared_features(trainer)
    if all(declared.get(name, True) is not True for name in ("epochs", "max_steps")):
        yield "neither `epochs` nor `max_steps` ends a run"
    for name in (name for name, value in declared.items() if value is True):
        if absent := [part for part in PARTS.get(name, ()) if getattr(trainer, part, None) is None]:
            yield f"`features` has {name!r}, and there is no `{'`, no `'.join(absent)}`"


def check_simplest_run(trainer: Any, run: Run) -> None:
    """Check that the simplest run reports nothing that the adapter declares to be missing.

    Args:
        trainer: The adapter.
        run: Its run of the simplest job.

    Raises:
        Contradiction: The run reports a feature that the trainer does not have by its adapter, whose claims would not
            be tried.
    """
    missing = missing_features(trainer)
    reported = {name: any(name in row for row in run.logs) for name in LOGGED}
    reported |= {"evaluate": bool(run.evaluations), "save": bool(run.checkpoints), "events": bool(run.events)}
    reported |= {"best_step": run.best is not None, "best_model": bool(run.best_weights), "average": bool(run.average)}
    problems = [
        f"the simplest run reports `{name}`, which is missing by `features` ({missing[name]})"
        for name, is_reported in reported.items()
        if is_reported and name in missing
    ]
    if problems:
        hint = "leave it out of the report, or set it to True in `features`, so that its claims are tried"
        raise Contradiction(f"{type(trainer).__qualname__} contradicts itself: {'; '.join(problems)}; {hint}")
