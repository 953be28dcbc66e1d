"""Attacks on the note of an interrupt. The subject is `reference_trainer.pipeline.distill`, or has its name."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.interruptions import at_line, before_operations
from falsifiers.support.small_runs import run, small
from reference_trainer.interrupts import WrittenNote

OLDER, NEW = 2.0, 3.0  # temperatures, which do not affect the teacher
LINES = 6
"""How many of the lines after the training are tried, besides every operation on a file."""


@given(seed=st.integers(0, 999))
def falsify_interrupt_reports_whether_model_was_written(subject: Any, seed: int) -> None:
    """Before every operation on a file, and before some lines after the training: the note is right.

    Also over an older model, and in the directory of the cached teacher, whose manifest is not a model's.
    """
    with tempfile.TemporaryDirectory() as name:
        older = Path(name).resolve()
        run(subject, _settings(older, "out", OLDER))
        (kept,) = (path.name for path in (older / "cache").iterdir())
        _assert_noted(subject, "over an older model", lambda new: _copied(older, new), seed)
        _assert_noted(subject, "beside its teacher", lambda new: _settings(new, f"cache/{kept}", NEW), seed)


def _assert_noted(subject: Any, where: str, settings_in: Callable[[Path], Any], seed: int) -> None:
    for moment in itertools.count(1):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name).resolve()
            settings = settings_in(directory)
            with before_operations(directory, partial(_raise_at, moment)):
                notes = _notes(subject, settings)
            _assert_right(f"{where}, interrupted before operation {moment}", notes, settings.out)
        if notes is None:
            break
    for moment in _lines(subject, settings_in, seed):
        with tempfile.TemporaryDirectory() as name:
            settings = settings_in(Path(name))
            with _traced(partial(at_line, moment, _raise, _files())):
                notes = _notes(subject, settings)
            assert notes is not None, f"{where}, an interrupt before line {moment} of a run is lost"
            _assert_right(f"{where}, interrupted before line {moment}", notes, settings.out)


def _assert_right(when: str, notes: list[str] | None, directory: Path) -> None:
    left = _this_model(directory)
    assert notes is not None or left, f"{when}, a finished run left no model"
    assert notes is None or any(isinstance(note, WrittenNote) for note in notes) == left, (
        f"{when}: the model is {'' if left else 'not '}written, and the interrupt has the notes {notes}"
    )


def _notes(subject: Any, settings: Any) -> list[str] | None:
    """Return the notes of the interrupt that ended the run; None if it was not interrupted."""
    try:
        run(subject, settings, callbacks=[_listener(lambda: None)])
    except KeyboardInterrupt as interrupt:
        return list(getattr(interrupt, "__notes__", []))
    return None


def _settings(directory: Path, out: str, temperature: float) -> Any:
    others = {"trace": directory / "trace", "batch_size": 16, "force": True, "temperature": temperature}
    return small(directory, out=directory / out, **others)


def _copied(older: Path, new: Path) -> Any:
    shutil.copytree(older, new, dirs_exist_ok=True)
    return _settings(new, "out", NEW)


def _listener(trained: Callable[[], None]) -> Any:
    """Return a callback that calls `trained` when the training has ended."""

    def end(listener: Any, context: Any) -> None:
        trained()

    return type("Listener", (reference_trainer.Callback,), {"on_train_end": end})()


def _files() -> frozenset[str]:
    return frozenset(map(str, Path(reference_trainer.__file__).parent.rglob("*.py")))


def _lines(subject: Any, settings_in: Callable[[Path], Any], seed: int) -> list[int]:
    """Return the numbers of some lines of a run that are executed after its training, but not in comprehensions."""
    files, lines, trained = _files(), list[str](), list[int]()

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines.append(frame.f_code.co_name)
        return look

    listener = _listener(lambda: trained.append(len(lines)))
    with tempfile.TemporaryDirectory() as name:
        settings = settings_in(Path(name))
        with _traced(lambda: sys.settrace(look)):
            run(subject, settings, callbacks=[listener])
    numbers = [k for k, code in enumerate(lines, 1) if k > trained[0] and not code.startswith("<")]
    return random.Random(seed).sample(numbers, min(LINES, len(numbers)))


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


def _raise_at(moment: int, operation: int) -> None:
    if operation == moment:
        _raise()


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
