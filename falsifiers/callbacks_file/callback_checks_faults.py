"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def callbacks_unchecked(callbacks: Iterable[Any]) -> tuple[Any, ...]:
    """Accept any object as a callback."""
    return tuple(callbacks)


def answers_kept(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Accept an answer to on_save."""
    if event.value != "on_save":
        return original(callbacks, event, context)
    return max(((each.on_save(context) or 0) for each in callbacks), default=0)
