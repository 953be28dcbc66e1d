"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any


def never_read(original: Any, directory: Path) -> Any:
    """Take every checkpoint with a manifest for whole."""
    return [replace(each, fault=None if each.saved_at else each.fault) for each in original(directory)]
