"""Attacks on the isolation of hooks: a callback changes its whole context, and no other hook may see a change."""

from dataclasses import fields, replace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.callbacks.lifecycle import Script, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from reference_trainer.callbacks.base import Context
from reference_trainer.callbacks.dispatch import Observer

FIELDS = [each.name for each in fields(Context) if each.name != "memory"]  # the memory of a process is its own
CHANGING = 1
"""The number of the callback that changes what it receives; callback 0 is called before it, callback 2 after it."""


@given(script=scripts(st.none(), fewest=1))
def falsify_a_hook_changes_its_own_context_only(subject: Any, script: Script) -> None:
    script = replace(script, answers=((),) * 3, every=(1, 1, 1))
    undisturbed, disturbed = (_notes(subject, script, changes) for changes in (False, True))
    for wanted, seen in zip(undisturbed, disturbed, strict=True):
        assert seen == wanted, f"callback {CHANGING} changed its own context, and {seen}; expected {wanted}"


def _notes(subject: Any, script: Script, changes: bool) -> list[str]:
    """Return what the other callbacks and an observer receive in a run, in order, and its result."""
    notes, observed = list[str](), list[str]()

    def act(callback: int, event: str, context: Any) -> None:
        if callback == CHANGING and changes:
            _change(event, context)
        elif callback != CHANGING:
            notes.extend(f"{name} of {event} of callback {callback}: {getattr(context, name)!r}" for name in FIELDS)

    def observe(self: Any, context: Any) -> None:
        observed.extend(f"{name} of an observer: {getattr(context, name)!r}" for name in FIELDS)

    metrics = {"hard_loss": 2.0, "lists": [1.0, {"inner": [2.0]}], "tensor": torch.ones(2)}
    observer = type("Observing", (Observer,), {"on_step_end": observe})()
    given = parts() | {"clock": lambda: 0.0, "evaluate": lambda: metrics}
    result = run(subject, script, [*recording_callbacks(3, act), observer], given)
    return [*notes, *observed, f"the result: {result}"]


UNKNOWN = ("lost", "validation", "epoch_step")
"""Names that are no fields of a context."""


def _change(event: str, context: Any) -> None:
    for name in UNKNOWN:
        for kind, each in (("a context", context), ("a snapshot", context.snapshot())):
            try:
                value = getattr(each, name)
            except AttributeError as error:
                assert name in str(error), f"{event}: {name!r} of {kind} is refused with {error}"
            else:
                raise AssertionError(f"{event}: {name!r} is no field of a context, and {value!r} of {kind}")
    for name in FIELDS:
        try:
            setattr(context, name, -1)
        except AttributeError:
            _spoil(getattr(context, name))
        else:
            raise AssertionError(f"{event}: context.{name} = -1 was accepted; expected AttributeError")


def _spoil(value: Any) -> None:
    if isinstance(value, Tensor):
        value.zero_()
    for inner in [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(inner)
    if isinstance(value, dict):
        value["loss"] = value["hard_loss"] = -1
    elif isinstance(value, list):
        value.append(-1)
