"""Wrong versions of public functions: the faults that the contract `callback-checks` declares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def odd_answers_ignored(callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Treat an answer that is not an action as None."""
    from reference_trainer.training.schedule import Action

    answers = [getattr(callback, event.value)(context) for callback in callbacks]
    return max([Action.CONTINUE, *(answer for answer in answers if isinstance(answer, Action))])


def callbacks_unchecked(callbacks: Iterable[Any]) -> tuple[Any, ...]:
    """Accept any object as a callback."""
    return tuple(callbacks)


def iterable_unchecked(original: Any, callbacks: Any) -> tuple[Any, ...]:
    """Check the callbacks one by one."""
    return tuple(each for callback in callbacks for each in original([callback]))


def hooks_unchecked(original: Any, callbacks: Iterable[Any]) -> tuple[Any, ...]:
    """Check the type of callbacks, but not their hooks."""
    callbacks = tuple(callbacks)
    original([callback for callback in callbacks if not hasattr(type(callback), "on_train_end")])
    return callbacks


def only_similar_names_refused(original: Any, callbacks: Iterable[Any]) -> tuple[Any, ...]:
    """Accept an unknown hook whose name resembles none."""
    callbacks = tuple(callbacks)
    try:
        original(callbacks)
    except Exception as error:
        if "choose from" not in str(error):
            raise
    return callbacks


def properties_evaluated(original: Any, callbacks: Iterable[Any]) -> Any:
    """Evaluate every attribute of a callback before the run."""
    callbacks = tuple(callbacks)
    for callback in callbacks:
        for name in dir(callback):
            getattr(callback, name)
    return original(callbacks)


def answers_kept(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Accept an answer to on_save."""
    if event.value != "on_save":
        return original(callbacks, event, context)
    return max(((each.on_save(context) or 0) for each in callbacks), default=0)
