"""Attacks on the checkpoints that stay, and on their links. The subject is `storage.checkpoints`, or has its names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import RUN, assert_whole, manifest, names, place, tensors
from reference_trainer.errors import CheckpointError
from reference_trainer.storage.checkpoint_files import find_checkpoint, saved_steps
from reference_trainer.storage.retention import checkpoint_name

OTHER = "ab"
"""A run whose checkpoints the id of the other one matches as a pattern."""


@given(gaps=st.lists(st.integers(1, 9), min_size=1, max_size=6), keep=st.integers(0, 3), best=st.integers(0, 6))
def falsify_last_and_best_stay(subject: Any, gaps: list[int], keep: int, best: int) -> None:
    steps = [sum(gaps[: k + 1]) for k in range(len(gaps))]
    saved: list[int] = []
    with place() as directory:
        subject.save_checkpoint(directory, manifest(1, run=OTHER), tensors(1), keep=1)
        for k, step in enumerate(steps):
            chosen = steps[best] if best <= k else None
            subject.save_checkpoint(directory, manifest(step, best=chosen), tensors(step), keep=keep)
            saved = [s for s in (*saved, step) if keep == 0 or s == chosen or sum(t > s for t in (*saved, step)) < keep]
            assert_whole(directory, [saved], f"after step {step} of {steps}, keep {keep}, best {chosen}")
            _assert_found(directory, "best", chosen)
            _assert_found(directory, "latest", step)
        assert saved_steps(directory, OTHER) == [1], "the checkpoint of another run is gone"
        moved = shutil.move(directory, directory.with_name("moved"))
        _assert_found(moved, "best", chosen)
        _assert_found(moved, "latest", step)


def _assert_found(directory: Path, wanted: str, step: int | None) -> None:
    try:
        found = find_checkpoint(directory, RUN, wanted).name
    except CheckpointError:
        found = None
    expected = None if step is None else checkpoint_name(RUN, step)
    assert found == expected, f"the {wanted} checkpoint is {found}; expected {expected}"
    link = directory / f"{RUN}-{wanted}"
    seen = link.resolve() if link.is_symlink() else None
    assert seen == (expected and directory / expected), f"the link {link.name} refers to {seen}; expected {expected}"


def falsify_links_are_not_trusted(subject: Any) -> None:
    with place() as directory:
        for name in ("latest", "best"):
            (directory / f"{RUN}-{name}").mkdir(parents=True)
            (directory / f"{RUN}-{name}" / "file").touch()
        for step in (1, 2, 3):
            subject.save_checkpoint(directory, manifest(step, best=2), tensors(step))
        odd = [name for name in names(directory) if name.endswith(".partial")]
        assert not odd, f"{odd} is left where a link cannot be made"
        seen = [find_checkpoint(directory, RUN, wanted).name for wanted in ("latest", "best")]
        expected = [checkpoint_name(RUN, step) for step in (3, 2)]
        assert seen == expected, f"latest and best are {seen} beside wrong links; expected {expected}"


@given(step=st.integers(0, 4))
def falsify_earlier_step_is_refused(subject: Any, step: int) -> None:
    with place(1, 3) as directory:
        before = names(directory)
        try:
            subject.save_checkpoint(directory, manifest(step), tensors(step), keep=1)
        except CheckpointError as error:
            assert step <= 3 and "step 3" in str(error), f"step {step} after 3 is refused with {error}"
            assert names(directory) == before, f"a refused save left {names(directory)}"
        else:
            assert step == 4, f"step {step} is saved after step 3"


LEFT = (".x.7.partial", f".{RUN}-step9.123.partial", f".{RUN}-latest.5.partial")
KEPT = (".partial", "x.partial", ".x.partial", ".hidden", "file", f"{RUN}-step9.partial")


def falsify_leftovers_are_removed(subject: Any) -> None:
    with place(1) as directory:
        outside = directory.with_name("outside")
        outside.mkdir()
        (outside / "file").touch()
        (directory / LEFT[0]).touch()
        (directory / LEFT[1]).mkdir()
        (directory / LEFT[1] / "file").touch()
        (directory / LEFT[2]).symlink_to(outside)
        for name in KEPT:
            (directory / name).touch()
        expected = sorted({*names(directory)} - {*LEFT})
        subject.sweep(directory)
        assert names(directory) == expected, f"after a sweep there are {names(directory)}; expected {expected}"
        assert names(outside) == ["file"], "a sweep removed files behind a link"


def falsify_leftovers_of_the_same_number_do_not_count(subject: Any) -> None:
    with place(1) as directory:
        left = directory / f".{checkpoint_name(RUN, 2)}.{os.getpid()}.partial"
        left.mkdir()
        (left / "file").touch()
        (directory / f".{RUN}-latest.{os.getpid()}.partial").symlink_to("nowhere")
        subject.save_checkpoint(directory, manifest(2), tensors(2))
        assert_whole(directory, [[1, 2]], "saved beside leftovers")
        _assert_found(directory, "latest", 2)
