"""Attacks on a cache of teachers that is damaged, not writable or missing.

The subject is that of `falsify_teacher_cache`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.teachers.teacher_cases import CONFIG, MANIFEST, WEIGHTS, Fetched, cut, reconfigure, settings_of


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1  # a low bit of a weight: still a number
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut in half": lambda d: cut(d / WEIGHTS),
    "empty weights": lambda d: cut(d / WEIGHTS, 0),
    "weights with one bit flipped": lambda d: _flip(d / WEIGHTS),
    "no weights": lambda d: (d / WEIGHTS).unlink(),
    "another shape in the configuration": lambda d: reconfigure(d / CONFIG, layers=2),
    "another number of heads in the configuration": lambda d: reconfigure(d / CONFIG, heads=2),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "a configuration cut in half": lambda d: cut(d / CONFIG),
    "no configuration": lambda d: (d / CONFIG).unlink(),
    "no manifest, as after a kill": lambda d: (d / MANIFEST).unlink(),
    "an empty manifest": lambda d: cut(d / MANIFEST, 0),
    "a manifest of nothing": lambda d: (d / MANIFEST).write_text("[]"),
}


@given(damage=st.sampled_from(list(DAMAGES)))
def falsify_damaged_cache_is_ignored(subject: Any, damage: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        settings = settings_of(Path(name))
        first = Fetched(subject, settings)
        (directory,) = Path(name).iterdir()
        DAMAGES[damage](directory)
        again = Fetched(subject, settings)
        assert again.steps == first.steps, f"with {damage}, the cached teacher is used: {again.said}"
        assert again.bits == first.bits, f"with {damage}, the teacher that is trained again has other weights"
        lines = len(first.said) + ("no manifest" not in damage)
        assert len(again.said) == lines, f"with {damage}, the output is {again.said}; expected {lines} lines"
        third = Fetched(subject, settings)
        assert third.steps == 0 and third.bits == first.bits, f"after {damage} the cache was not repaired: {third.said}"


def _file(path: Path) -> Path:
    path.touch()
    return path


UNWRITABLE: dict[str, Callable[[Path], Path]] = {
    "is a file": _file,
    "is below a file": lambda path: _file(path) / "cache",
    "cannot be created": lambda path: Path("/proc/cache"),
    "has too long a name": lambda path: path / ("x" * 300),
}


@given(kind=st.sampled_from(list(UNWRITABLE)))
def falsify_unwritable_cache_does_not_end_run(subject: Any, kind: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        expected = Fetched(subject, settings_of(Path(name, "good")))
        seen = Fetched(subject, settings_of(UNWRITABLE[kind](Path(name, "bad"))))
    assert seen.bits == expected.bits, f"a cache that {kind} gives another teacher"
    assert len(seen.said) == len(expected.said), f"with a cache that {kind} the output is {seen.said}"
