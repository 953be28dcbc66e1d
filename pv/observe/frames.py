"""Hides the frames of the observer's wrappers, so that warnings and tracebacks point to lines of the script.

`warnings` skips frames of the import system when it counts `stacklevel`. It recognizes them by `importlib` and
`_bootstrap` in the name of their file (`warnings._is_internal_frame`, and the same test in C), so the code of a wrapper
gets such a file name. A warning that the original function issues with `stacklevel=2` then names the caller of the
wrapper, and is shown once for every line of the script, as without the wrapper.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, Optional, TypeVar

HIDDEN = "<pv.observe: hidden from warnings, like importlib._bootstrap>"
"""The file name in the code of wrappers."""
Function = TypeVar("Function", bound=Callable[..., object])


def hidden(function: Function) -> Function:
    """Hide the frames of a function, and of the functions that are defined inside the function. Return the function."""
    untyped: Any = function
    untyped.__code__ = _renamed(untyped.__code__)
    return function


def _renamed(code: CodeType) -> CodeType:
    """Return code with the hidden file name; the constants contain the code of inner functions."""
    constants = tuple(_renamed(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_filename=HIDDEN, co_consts=constants)


def wraps(original: Callable[..., object]) -> Callable[[Function], Function]:
    """Return a decorator for a wrapper of a function: it applies `functools.wraps` and hides the wrapper's frames."""

    def decorate(wrapper: Function) -> Function:
        functools.update_wrapper(hidden(wrapper), original)
        return wrapper

    return decorate


def wrap(owner: object, name: str, make: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
    """Replace a function by its wrapper.

    Args:
        owner: The class or module that has the function.
        name: The name of the function.
        make: Called with the original function; returns the wrapper.
    """
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(make(original)))


def shorten(error: BaseException) -> None:
    """Remove the frames of wrappers from the tracebacks of an exception, its causes and its contexts."""
    pending: list[Optional[BaseException]] = [error]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        pending += [part.__cause__, part.__context__]
        part.__traceback__ = _without_hidden(part.__traceback__)


def _without_hidden(traceback: Optional[TracebackType]) -> Optional[TracebackType]:
    """Return a traceback without hidden frames; unchanged if all frames are hidden."""
    visible = []
    part = traceback
    while part is not None:
        if part.tb_frame.f_code.co_filename != HIDDEN:
            visible.append(part)
        part = part.tb_next
    for part, next_part in zip(visible, [*visible[1:], None]):
        part.tb_next = next_part
    return visible[0] if visible else traceback


def install() -> None:
    """Wrap `sys.excepthook` to shorten the traceback of an uncaught exception before it is printed."""
    original = sys.excepthook

    @wraps(original)
    def excepthook(kind: type[BaseException], error: BaseException, traceback: object) -> None:
        shorten(error)
        original(kind, error, error.__traceback__)

    sys.excepthook = excepthook
