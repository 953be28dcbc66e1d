"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from typing import Any


def error_dropped(original: Any, self: Any) -> None:
    """Forget the error."""
    try:
        original(self)
    except BaseException:
        return
