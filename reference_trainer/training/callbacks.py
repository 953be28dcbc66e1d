"""Callbacks of a run: the base class, the checks of instances, and the calls.

Hooks are called in the loop's thread, in the order of registration, every callback at every event. A hook returns an
`Action`, or None for `Action.CONTINUE`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from reference_trainer.errors import CallbackError
from reference_trainer.training.context import Context
from reference_trainer.training.schedule import Action, Event

__all__ = ["Callback", "Context", "call_hooks", "call_train_end", "checked"]


class Callback:
    """Base class of callbacks: override the hooks you need.

    Hooks are plain functions, and no other method starts with `on_`: `checked` refuses misspelt and asynchronous
    hooks. An exception in a hook ends the run; `on_train_end` is still called.
    """

    def attach(self, pipeline: Any) -> None:
        """Called once with the prepared `Distillation`, before its training; not called by a bare `loop.train`."""

    def on_train_begin(self, context: Context) -> Action | None:
        """Called once, before anything else."""
        return None

    def on_epoch_begin(self, context: Context) -> Action | None:
        """Called before the first step of each epoch. SKIP or STOP closes the epoch without a step."""
        return None

    def on_step_end(self, context: Context) -> Action | None:
        """Called after each optimizer step. SKIP ends the epoch; STOP closes the epoch and ends the run."""
        return None

    def on_epoch_end(self, context: Context) -> Action | None:
        """Called after each epoch, unless an exception ended it."""
        return None

    def on_train_end(self, context: Context) -> None:
        """Called exactly once however the run ends, also after exceptions of other callbacks."""


def checked(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple.

    Raise `CallbackError` for anything but an instance of `Callback`, for a method that starts with `on_` and is not a
    hook, and for a hook that is a coroutine function or a generator function. Helpers with other names, properties
    and attributes that are not callable are accepted.
    """
    callbacks = tuple(callbacks)  # consumed once: a generator would be empty after the check
    for position, callback in enumerate(callbacks, start=1):
        if not isinstance(callback, Callback):
            given = f"the class {callback.__name__}" if isinstance(callback, type) else f"a {type(callback).__name__}"
            raise CallbackError(f"callback {position} is {given}; expected an instance of reference_trainer's Callback")
        _refuse_unknown_hooks(callback, position)
        _refuse_unawaited_hooks(callback, position)
    return callbacks


def _refuse_unknown_hooks(callback: Callback, position: int) -> None:
    known = [event.value for event in Event]
    for name in dir(callback):
        if name.startswith("on_") and name not in known and _is_method(callback, name):
            near = difflib.get_close_matches(name, known, cutoff=0.8)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
            raise CallbackError(f"callback {position}: unknown hook {name!r} of {type(callback).__name__} ({hint})")


def _is_method(callback: Callback, name: str) -> bool:
    """Return whether the attribute is callable, without evaluating a property."""
    attribute = inspect.getattr_static(callback, name, None)
    return not isinstance(attribute, property | cached_property) and callable(getattr(callback, name))


def _refuse_unawaited_hooks(callback: Callback, position: int) -> None:
    """Refuse hooks whose body would never run, because a call only creates a coroutine or a generator."""
    for event in Event:
        hook = getattr(callback, event.value)
        asynchronous = inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook)
        if asynchronous or inspect.isgeneratorfunction(hook):
            kind = "an async function, which nothing awaits" if asynchronous else "a generator, which nothing iterates"
            hook_name = f"{type(callback).__name__}.{event.value}"
            raise CallbackError(f"callback {position}: {hook_name} is {kind}; expected a plain function")


def call_hooks(callbacks: Sequence[Callback], event: Event, context: Context) -> Action:
    """Call the hook of an event on every callback, in order, and return the strongest action.

    Raise `CallbackError` if a hook returns anything but an `Action` or None. Exceptions of hooks propagate.
    """
    strongest = Action.CONTINUE
    for callback in callbacks:
        answer = getattr(callback, event.value)(context)
        if answer is not None and not isinstance(answer, Action):
            raise CallbackError(
                f"{type(callback).__name__}.{event.value} returned {answer!r}; expected Action.CONTINUE, Action.SKIP, "
                f"Action.STOP or None"
            )
        strongest = max(strongest, answer or Action.CONTINUE)
    return strongest


def call_train_end(callbacks: Sequence[Callback], context: Context, cause: BaseException | None) -> None:
    """Call `on_train_end` of every callback, whatever the others raise.

    `cause` is the exception that ended the run. The caller keeps seeing it: exceptions of `on_train_end` become notes
    on it. Without a cause, raise the first such exception, with the others as notes.
    """
    first = cause
    for callback in callbacks:
        try:
            callback.on_train_end(context)
        except BaseException as error:  # an exit or interrupt in one callback must not skip the others
            if first is None:
                first = error
            else:
                first.add_note(f"and {type(callback).__name__}.on_train_end raised {type(error).__name__}: {error}")
    if cause is None and first is not None:
        raise first
