"""Attacks on the note of an interrupt during the export. The subject is that of `falsify_run_endings`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from falsifiers.distill_run.falsify_run_endings import run, small
from falsifiers.support.interruptions import at_line

WRITTEN = "the model had been written"
OLDER, NEW = 2.0, 3.0  # temperatures, which do not affect the teacher


@mock.patch.object(os, "fsync", lambda descriptor: None)  # which would take half of the time
def falsify_interrupt_reports_whether_model_was_written(subject: Any) -> None:
    """Before every line that claims, caches, exports or ends the run: the note is present if and only if it was.

    Also over an older model, and in the directory of the cached teacher, whose manifest is not a model's.
    """
    with tempfile.TemporaryDirectory() as name:
        older = Path(name)
        run(subject, _settings(subject, older, "out", OLDER))
        (kept,) = (path.name for path in (older / "cache").iterdir())
        run_and_export = [subject.__file__, _file_of(subject.save_decoder)]
        files = [*run_and_export, _file_of(subject.exclusive_directory)]
        _assert_noted(subject, "over an older model", lambda new: _copied(subject, older, new), run_and_export)
        _assert_noted(subject, "beside its teacher", lambda new: _settings(subject, new, f"cache/{kept}", NEW), files)


def _file_of(function: Callable[..., object]) -> str:
    """Return the file of the module that defines `function`, which may be decorated."""
    return str(sys.modules[function.__module__].__file__)


def _assert_noted(subject: Any, where: str, settings_in: Callable[[Path], Any], files: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        moments = _moments(subject, settings_in(Path(name)), files)
    for moment, line in moments:
        with tempfile.TemporaryDirectory() as name:
            settings = settings_in(Path(name))
            notes = _interrupted(subject, settings, moment, files)
            left = _this_model(settings.out)
        assert (WRITTEN in notes) == left, (
            f"{where}, interrupted before {line}: the model is {'' if left else 'not '}written, and the interrupt "
            f"has the notes {notes}"
        )


def _settings(subject: Any, directory: Path, out: str, temperature: float) -> Any:
    others = {"trace": directory / "trace", "batch_size": 16, "force": True, "temperature": temperature}
    return small(directory, subject, out=directory / out, **others)


def _copied(subject: Any, older: Path, new: Path) -> Any:
    shutil.copytree(older, new, dirs_exist_ok=True)
    return _settings(subject, new, "out", NEW)


def _moments(subject: Any, settings: Any, files: Sequence[str]) -> Sequence[tuple[int, str]]:
    """Return the executed lines of a run with their numbers, except those of comprehensions."""
    lines: list[tuple[str, int]] = []

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines.append((frame.f_code.co_name, frame.f_lineno))
        return look

    with _traced(lambda: sys.settrace(look)):
        run(subject, settings)
    return [(k, f"line {line} in {name}") for k, (name, line) in enumerate(lines, 1) if not name.startswith("<")]


@contextmanager
def _traced(begin: Callable[[], None]) -> Iterator[None]:
    before = sys.gettrace()
    begin()
    try:
        yield
    finally:
        sys.settrace(before)


def _raise() -> None:
    raise KeyboardInterrupt


def _interrupted(subject: Any, settings: Any, moment: int, files: Sequence[str]) -> list[str]:
    """Return the notes of an interrupt before the `moment`-th line."""
    try:
        with _traced(lambda: at_line(moment, _raise, files)):
            run(subject, settings)
    except KeyboardInterrupt as interrupt:
        return list(getattr(interrupt, "__notes__", []))
    raise AssertionError(f"an interrupt before line {moment} of a run is lost")


def _this_model(directory: Path) -> bool:
    """Return whether the model of this run is complete; an older model or a cached teacher does not count."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    if manifest.get("settings", {}).get("temperature") != NEW:
        return False
    found = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in manifest["sha256"]}
    assert manifest["sha256"] == found, f"the manifest has {manifest['sha256']}, the files have {found}"
    return True
