"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def later_ones_removed(original: Any, *given: Any, **rest: Any) -> Any:
    """Delete what is set aside."""
    aside = original(*given, **rest)
    if aside is not None:
        shutil.rmtree(aside)
    return aside


def nothing_set_aside(directory: Path, run_id: str, start: int | None, **rest: Any) -> Path:
    """Move nothing."""
    return directory
