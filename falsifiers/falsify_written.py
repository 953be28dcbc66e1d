"""Attacks on what an interrupt says of the model. The subject is that of `falsify_distill_ends`."""

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

from falsifiers.falsify_distill_ends import run, small
from falsifiers.interruptions import at_line

WRITTEN = "the model had been written"
OLDER, NEW = 2.0, 3.0  # temperatures, on which the teacher doesn't depend
FILES = ("export.py", "distill.py", "files.py")


@mock.patch.object(os, "fsync", lambda descriptor: None)  # which would take half of the time
def falsify_an_interrupt_says_whether_the_model_is_in_place(subject: Any) -> None:
    """Before every line that claims, keeps the teacher, exports, or ends the run: the note if, and only if, it is.

    Over an older model, and where the teacher is kept, whose manifest is no model's.
    """
    with tempfile.TemporaryDirectory() as name:
        older = Path(name)
        run(subject, _settings(subject, older, "out", OLDER))
        (kept,) = (path.name for path in (older / "cache").iterdir())
        _assert_noted(subject, "over an older model", lambda new: _copied(subject, older, new), FILES[:2])
        _assert_noted(subject, "beside its teacher", lambda new: _settings(subject, new, f"cache/{kept}", NEW), FILES)


def _assert_noted(subject: Any, where: str, settings_in: Callable[[Path], Any], names: Sequence[str]) -> None:
    files = [str(Path(subject.__file__).with_name(name)) for name in names]
    with tempfile.TemporaryDirectory() as name:
        moments = _moments(subject, settings_in(Path(name)), files)
    for moment, line in moments:
        with tempfile.TemporaryDirectory() as name:
            settings = settings_in(Path(name))
            notes = _interrupted(subject, settings, moment, files)
            left = _this_model(settings.out)
        assert (WRITTEN in notes) == left, (
            f"{where}, interrupted before {line}: the model is {'' if left else 'not '}in place, and the interrupt "
            f"bears the notes {notes}"
        )


def _settings(subject: Any, directory: Path, out: str, temperature: float) -> Any:
    others = {"trace": directory / "trace", "batch_size": 16, "force": True, "temperature": temperature}
    return small(directory, subject, out=directory / out, **others)


def _copied(subject: Any, older: Path, new: Path) -> Any:
    shutil.copytree(older, new, dirs_exist_ok=True)
    return _settings(subject, new, "out", NEW)


def _moments(subject: Any, settings: Any, files: Sequence[str]) -> Sequence[tuple[int, str]]:
    """Which of the lines that a run goes through, and where they stand; one of a comprehension is like another."""
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
    """The notes of the interrupt that came before so many lines."""
    try:
        with _traced(lambda: at_line(moment, _raise, files)):
            run(subject, settings)
    except KeyboardInterrupt as interrupt:
        return list(getattr(interrupt, "__notes__", []))
    raise AssertionError(f"an interrupt before line {moment} of a run is lost")


def _this_model(directory: Path) -> bool:
    """Whether the files of the run under attack are there, whole; an older model and a kept teacher aren't it."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    if manifest.get("settings", {}).get("temperature") != NEW:
        return False
    found = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in manifest["sha256"]}
    assert manifest["sha256"] == found, f"the manifest says {manifest['sha256']}, and beside it lies {found}"
    return True
