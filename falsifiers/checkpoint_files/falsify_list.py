"""Attacks on listing and verifying checkpoints. The subject is `pipeline.checkpoint_list`, or has its names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import RANK, RUN, manifest, place, tensors
from falsifiers.support.scratch import flip
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.retention import checkpoint_name

STEPS = (9, 10, 100)
OTHER = "ab"
"""A run whose checkpoints the id of the other one matches as a pattern."""


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (lambda p: flip(p / RANK), f"{RANK} has the SHA-256"),
    "a missing file": (lambda p: (p / RANK).unlink(), f"{RANK} is missing"),
    "no manifest": (lambda p: (p / "manifest.json").unlink(), "manifest.json"),
    "a broken manifest": (lambda p: (p / "manifest.json").write_text("{"), "is not JSON"),
    "the manifest of another": (
        lambda p: shutil.copy(p.with_name(checkpoint_name(OTHER, 7)) / "manifest.json", p / "manifest.json"),
        "give the directory its old name again",
    ),
}


@given(
    damage=st.dictionaries(st.sampled_from(STEPS), st.sampled_from(list(DAMAGES)), max_size=3),
    better=st.sets(st.sampled_from(STEPS)),
    inside=st.booleans(),
)
def falsify_every_checkpoint_is_listed_and_verified(
    subject: Any, damage: dict[int, str], better: set[int], inside: bool
) -> None:
    """better: the steps that were better than those before."""
    with place() as directory:
        for step in STEPS:
            save_checkpoint(directory, manifest(step, best=_best_at(step, better)), tensors(step))
            os.utime(directory / checkpoint_name(RUN, step) / "manifest.json", (1e9 + step, 1e9 + step))
        save_checkpoint(directory, manifest(7, run=OTHER), tensors(7))
        (directory / f"{RUN}-rewound-1").mkdir()
        (directory / "file-step3").touch()
        for step, kind in sorted(damage.items()):
            DAMAGES[kind][0](directory / checkpoint_name(RUN, step))
        found = subject.list_checkpoints(directory if inside else directory.parent)
        seen = [(each.run_id, each.step) for each in found]
        expected = sorted([(RUN, 9), (RUN, 10), (RUN, 100), (OTHER, 7)])
        assert seen == expected, f"{seen} are listed; expected {expected}"
        for each in found:
            _assert_entry(each, damage.get(each.step), directory)
        _assert_lines(subject.table(found), found, damage, better)


def _best_at(step: int, better: set[int]) -> int | None:
    return max((each for each in better if each <= step), default=None)


def _assert_entry(each: Any, kind: str | None, directory: Path) -> None:
    assert each.path == directory / checkpoint_name(each.run_id, each.step), f"step {each.step} is at {each.path}"
    size = sum(file.stat().st_size for file in each.path.iterdir())
    assert each.size == size, f"step {each.step} takes {each.size} bytes; expected {size}"
    words = None if kind is None else DAMAGES[kind][1]
    fits = each.fault is None if words is None else words in (each.fault or "")
    assert fits, f"step {each.step} with {kind or 'no damage'} has the fault {each.fault!r}; expected {words!r}"
    if each.run_id == RUN and kind not in ("no manifest", "a broken manifest", "the manifest of another"):
        assert each.saved_at == 1e9 + each.step, f"step {each.step} was saved at {each.saved_at}"
    assert (each.saved_at is None) == (kind == "no manifest"), f"step {each.step} was saved at {each.saved_at}"


def _assert_lines(lines: list[str], found: list[Any], damage: dict[int, str], better: set[int]) -> None:
    """One line for each, which says what the entry says, and marks the latest and the best of what is whole."""
    whole = [each for each in STEPS if each not in damage]
    best = _best_at(whole[-1], better) if whole else None
    assert len(lines) == len(found), f"{len(found)} checkpoints have {len(lines)} lines"
    for line, each in zip(lines, found, strict=True):
        words = [each.path.name, f"{each.size:,} bytes"]
        words += ["2001-09-09 01:46:49Z"] if each.saved_at == 1e9 + 9 else []
        words += ["never completed"] if each.saved_at is None else []
        words += [f"damaged: {each.fault}"] if each.fault else ["whole"]
        missing = [word for word in words if word not in line]
        assert not missing, f"the line of step {each.step} lacks {missing}: {line}"
        marks = [mark for mark in (", latest", ", best (score 0.5)") if mark in line]
        expected = [", latest"] * (each.fault is None and each.step in (7, 100))
        expected += [", best (score 0.5)"] * (each.fault is None and each.step == best)
        assert marks == expected, f"the line of step {each.step} has the marks {marks}; expected {expected}"
