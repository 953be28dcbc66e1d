"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from typing import Any


def never_verified(directory: Any) -> None:
    """Take every model for whole."""
