"""Faults that mutants of the contract put in place of functions of the trainer."""

from __future__ import annotations

from typing import Any


def nothing_checked(self: Any) -> None:
    """Check nothing before a run begins."""
