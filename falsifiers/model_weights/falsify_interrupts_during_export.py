"""Attacks on the note of an interrupt. The subject is `reference_trainer.pipeline.distill`, or has its name."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from falsifiers.rank_runs.launched import scratch
from falsifiers.support.interruptions import before_operations
from falsifiers.support.small_runs import run, small
from reference_trainer.interrupts import WrittenNote

OLDER, NEW = 2.0, 3.0  # temperatures, which do not affect the teacher


def falsify_interrupt_reports_whether_model_was_written(subject: Any) -> None:
    """Before every operation on a file, over an older model."""
    with scratch() as older:
        run(subject, _settings(older, OLDER))
        for moment in itertools.count(1):
            with scratch() as directory:
                shutil.copytree(older, directory, dirs_exist_ok=True)
                notes = _notes(subject, directory, moment)
                _assert_right(f"interrupted before operation {moment}", notes, directory / "out")
            if notes is None:
                break


def _settings(directory: Path, temperature: float) -> Any:
    return small(directory, out=directory / "out", batch_size=16, force=True, temperature=temperature)


def _notes(subject: Any, directory: Path, moment: int) -> list[str] | None:
    """Return the notes of the interrupt that ended the run; None if it was not interrupted."""
    settings = _settings(directory, NEW)
    try:
        with before_operations(directory, partial(_raise_at, moment)):
            run(subject, settings)
    except KeyboardInterrupt as interrupt:
        return list(getattr(interrupt, "__notes__", []))
    return None


def _raise_at(moment: int, operation: int) -> None:
    if operation == moment:
        raise KeyboardInterrupt


def _assert_right(when: str, notes: list[str] | None, directory: Path) -> None:
    left = _this_model(directory)
    assert notes is not None or left, f"{when}, a finished run left no model"
    assert notes is None or any(isinstance(note, WrittenNote) for note in notes) == left, (
        f"{when}: the model is {'' if left else 'not '}written, and the interrupt has the notes {notes}"
    )


def _this_model(directory: Path) -> bool:
    """Return whether the model of this run is complete; an older model does not count."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    if manifest["settings"]["temperature"] != NEW:
        return False
    found = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in manifest["sha256"]}
    assert manifest["sha256"] == found, f"the manifest has {manifest['sha256']}, the files have {found}"
    return True
