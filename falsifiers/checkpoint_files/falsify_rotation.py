"""Attacks on checkpoints that stay, their links and list. Subjects: `storage.checkpoints`, `checkpoint_list`."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import RANK, RUN, assert_whole, manifest, names, place, tensors
from falsifiers.support.scratch import flip
from reference_trainer.errors import CheckpointError
from reference_trainer.storage.checkpoint_files import find_checkpoint, saved_steps
from reference_trainer.storage.checkpoints import save_checkpoint
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
        left = directory / f".{checkpoint_name(RUN, 2)}.{os.getpid()}.partial"
        left.mkdir()
        (left / "file").touch()  # of a killed process of the same number, as containers give it
        (directory / f".{RUN}-latest.{os.getpid()}.partial").symlink_to("nowhere")
        subject.save_checkpoint(directory, manifest(2), tensors(2))
        assert_whole(directory, [[1, 2]], "saved beside leftovers")
        _assert_found(directory, "latest", 2)


STEPS = (9, 10, 100)
ANOTHER = "ab"
"""A run whose checkpoints the id of the other one matches as a pattern."""


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (lambda p: flip(p / RANK), f"{RANK} has the SHA-256"),
    "a missing file": (lambda p: (p / RANK).unlink(), f"{RANK} is missing"),
    "no manifest": (lambda p: (p / "manifest.json").unlink(), "manifest.json"),
    "a broken manifest": (lambda p: (p / "manifest.json").write_text("{"), "is not JSON"),
    "the manifest of another": (
        lambda p: shutil.copy(p.with_name(checkpoint_name(ANOTHER, 7)) / "manifest.json", p / "manifest.json"),
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
        save_checkpoint(directory, manifest(7, run=ANOTHER), tensors(7))
        (directory / f"{RUN}-rewound-1").mkdir()
        (directory / "file-step3").touch()
        for step, kind in sorted(damage.items()):
            DAMAGES[kind][0](directory / checkpoint_name(RUN, step))
        found = subject.list_checkpoints(directory if inside else directory.parent)
        seen = [(each.run_id, each.step) for each in found]
        expected = sorted([(RUN, 9), (RUN, 10), (RUN, 100), (ANOTHER, 7)])
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
