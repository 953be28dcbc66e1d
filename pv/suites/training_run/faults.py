"""Wrong versions of functions of the suite: the faults that the contract declares."""

from typing import Any


def nothing_noted(record: Any, at: str, seen: str, right: str) -> None:
    """Forget a finding."""
