"""Wrong versions of public functions: the faults that the contract `rewind` declares."""

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


def earlier_rewind_replaced(original: Any, directory: Path, run_id: str, *given: Any, **rest: Any) -> Any:
    """Use one directory for all."""
    from reference_trainer.storage.checkpoint_files import saved_steps

    first = directory / f"{run_id}-rewound-1"
    if first.exists() and any(step > (given[0] or 0) for step in saved_steps(directory, run_id)):
        shutil.rmtree(first)
    return original(directory, run_id, *given, **rest)


def every_run_rewound(original: Any, directory: Path, run_id: str, start: int | None, **rest: Any) -> Any:
    """Move checkpoints whatever the run."""
    aside = original(directory, run_id, start, **rest)
    if aside is not None:
        for each in directory.glob("*-step1*"):
            if not each.name.startswith(run_id) and each.is_dir():
                each.rename(aside / each.name)
    return aside


def links_left_behind(directory: Path, run_id: str, **rest: Any) -> None:
    """Leave the links as they are."""


def failed_rewind_ignored(original: Any, *given: Any, **rest: Any) -> Any:
    """Go on where a checkpoint cannot be moved."""
    from reference_trainer.errors import OutputError

    try:
        return original(*given, **rest)
    except OutputError:
        return None


def copied_aside(directory: Path, run_id: str, start: int | None, **rest: Any) -> Any:
    """Copy each checkpoint, then remove it."""
    from reference_trainer.storage.checkpoint_files import saved_steps

    steps = [step for step in saved_steps(directory, run_id) if start is None or step > start]
    aside = directory / f"{run_id}-rewound-{sum(1 for each in directory.iterdir() if '-rewound-' in each.name) + 1}"
    for step in steps:
        old = directory / f"{run_id}-step{step}"
        shutil.copytree(old, aside / old.name)
        shutil.rmtree(old)
    return aside if steps else None
