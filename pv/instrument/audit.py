"""One audit hook for all observers of this process. Standard library only.

Python calls every audit hook for every event, and a hook cannot be removed. Training code raises millions of events
that no observer wants (`builtins.id`, `sys._getframe`), so one hook looks up the observers of an event.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

Observer = Callable[[str, tuple[Any, ...]], None]
"""Called with the name of an event and its arguments, by `_dispatch`, which the code that raised the event calls."""
_observers: dict[str, list[Observer]] = {}


def observe(events: Iterable[str], observer: Observer) -> None:
    """Call an observer for these audit events from now on."""
    if not _observers:
        sys.addaudithook(_dispatch)
    for event in events:
        _observers.setdefault(event, []).append(observer)


def leave(observer: Observer) -> None:
    """Call an observer no more."""
    for observers in _observers.values():
        if observer in observers:
            observers.remove(observer)


def _dispatch(event: str, arguments: tuple[object, ...]) -> None:
    for observer in _observers.get(event, ()):
        observer(event, arguments)
