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
    "weights with one bit flipped": lambda d: _flip(d / WEIGHTS),
    "another shape in the configuration": lambda d: reconfigure(d / CONFIG, layers=2),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "no manifest, as after a kill": lambda d: (d / MANIFEST).unlink(),
    "an empty manifest": lambda d: cut(d / MANIFEST, 0),
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


def falsify_unwritable_cache_does_not_end_run(subject: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        expected = Fetched(subject, settings_of(Path(name, "good")))
        Path(name, "file").touch()
        seen = Fetched(subject, settings_of(Path(name, "file", "cache")))
    assert seen.bits == expected.bits, "a cache below a file gives another teacher"
    assert len(seen.said) == len(expected.said), f"with a cache below a file the output is {seen.said}"
