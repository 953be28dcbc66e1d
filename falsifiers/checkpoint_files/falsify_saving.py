"""Attacks on saving, retaining and linking checkpoints. The subject is `storage.checkpoints`."""

import errno
import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import (
    RANK,
    RUN,
    assert_same,
    assert_whole,
    contents,
    manifest,
    names,
    place,
    tensors,
)
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.interruptions import ended_before
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import flip
from reference_trainer.errors import CheckpointError, OutputError
from reference_trainer.storage.checkpoints import MANIFEST, Disk, find_checkpoint, read_checkpoint, saved_steps
from reference_trainer.storage.retention import checkpoint_name

DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
KINDS = st.tuples(DTYPES, st.sampled_from([(), (0,), (3,), (2, 3)]))


def _partial_files(directory: Path) -> list[str]:
    return [name for name in names(directory) if name.endswith(".partial")]


@given(kinds=st.lists(KINDS, max_size=4), seed=st.integers(0, 99))
def falsify_checkpoint_is_read_as_it_was_saved(subject: Any, kinds: list[Any], seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    state = {f"t{k}": _tensor(dtype, shape, numbers) for k, (dtype, shape) in enumerate(kinds)}
    # safetensors refuses tensors that share memory, so the trainer must copy them.
    state |= {f"{name}.shared": value for name, value in state.items()}
    with place() as directory:
        # No field has its default: one file of two ranks is what DDP saves.
        saved = manifest(3, best=3).model_copy(update={"world_size": 2, "strategy": "ddp"})
        path = subject.save_checkpoint(directory, saved, state)
        read = read_checkpoint(path)
        assert_same("saved and read", read.tensors, state)
        actual, expected = (m.model_dump(exclude={"files", "sha256"}) for m in (read.manifest, saved))
        assert_equal("the manifest", actual, expected)
        assert_equal("files", names(path), [MANIFEST, RANK])


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], numbers: torch.Generator) -> torch.Tensor:
    """Return random numbers, some of them NaN if floating; a matrix is transposed, so it is not contiguous."""
    values = torch.randn(shape, generator=numbers)
    values = torch.where(values > 1, torch.nan, values) if dtype.is_floating_point else values
    return values.to(dtype).T if len(shape) == 2 else values.to(dtype)


class Recorder(Disk):
    """A disk that logs each operation, its file, and whether the final name exists, and then calls `act`.

    The operation itself follows `act`, which may raise instead; it gets the number of the operation, from 1.
    """

    def __init__(self, final: Path, act: Callable[[int], None] = lambda number: None) -> None:
        self.final, self.act, self.log = final, act, list[tuple[str, str, bool]]()

    def _note(self, operation: str, path: Path) -> None:
        kind = "the directory" if path == self.final.parent else "the checkpoint" if path.is_dir() else path.name
        self.log.append((operation, kind, self.final.exists()))
        self.act(len(self.log))

    def write(self, path: Path, content: bytes) -> None:
        self._note("write", path)
        super().write(path, content)

    def sync(self, path: Path) -> None:
        self._note("sync", path)
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self._note("rename", old)
        super().rename(old, new)


ORDER = [
    ("write", RANK, False),
    ("sync", RANK, False),
    ("write", MANIFEST, False),
    ("sync", MANIFEST, False),
    ("sync", "the checkpoint", False),
    ("rename", "the checkpoint", False),
    ("sync", "the directory", True),
]


def falsify_files_are_synced_before_the_rename(subject: Any) -> None:
    with place(1) as directory:
        disk = Recorder(directory / checkpoint_name(RUN, 2))
        subject.save_checkpoint(directory, manifest(2), tensors(2), disk=disk)
        calls = list[object]()
        sys.setprofile(lambda frame, event, called: calls.append(called) if event == "c_call" else None)
        try:
            subject.save_checkpoint(directory, manifest(3), tensors(3))
        finally:
            sys.setprofile(None)
    assert_equal("operations, and whether the checkpoint is in place", disk.log, ORDER)
    assert_equal("calls of os.fsync in a save to the default disk", calls.count(os.fsync), 4)


@given(number=st.sampled_from([errno.ENOSPC, errno.EIO]), older=st.integers(0, 2), damaged=st.booleans())
@example(number=errno.ENOSPC, older=2, damaged=False)
@example(number=errno.EIO, older=1, damaged=True)
def falsify_failed_save_keeps_the_older_ones(subject: Any, number: int, older: int, damaged: bool) -> None:
    """Fail each operation of a save; damaged: whether the newest of the `older` checkpoints is damaged before it."""
    for at in range(1, len(ORDER) + 1):
        _assert_failed_save(subject, at, number, older, damaged)


def _assert_failed_save(subject: Any, at: int, number: int, older: int, damaged: bool) -> None:
    """Fail operation `at` of a save. The last one follows the rename, so the new checkpoint is then complete too."""

    def fail(count: int) -> None:
        if count == at:
            raise OSError(number, os.strerror(number))

    with place(*range(1, older + 1)) as directory:
        final, steps = directory / checkpoint_name(RUN, 3), [*range(1, older + 1), *([3] if at == len(ORDER) else [])]
        name, newest = steps and checkpoint_name(RUN, steps[-1]), directory / checkpoint_name(RUN, older) / RANK
        words = f"the newest checkpoint, {name}, is undamaged" if steps else "no other checkpoint"
        if damaged and older:
            flip(newest)
            words = words if steps[-1] == 3 else f"damaged: {newest}"
        save = partial(subject.save_checkpoint, directory, manifest(3), tensors(3), disk=Recorder(final, fail))
        when = f"beside {older} checkpoints, where operation {at} fails with {os.strerror(number)!r}"
        assert_refused(when, save, str(final), os.strerror(number), words, kind=OutputError)
        if damaged and older:
            flip(newest)  # repair it, so that every checkpoint must be readable
        assert_whole(directory, [steps], when)
        assert_equal(f"{when}, partial files", _partial_files(directory), [])


class ChangingDisk(Disk):
    """A disk with `free` free bytes that changes the content of files called `name`, and counts the bytes to write."""

    def __init__(self, free: int = 2**40, name: str = "", change: Callable[[bytes], bytes] = bytes) -> None:
        self.bytes, self.name, self.change, self.written = free, name, change, 0

    def free(self, directory: Path) -> int:
        assert directory.is_dir(), f"the free space of {directory} is queried; expected an existing directory"
        return self.bytes

    def write(self, path: Path, content: bytes) -> None:
        self.written += len(content)
        super().write(path, self.change(content) if path.name == self.name else content)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "the last byte lost": lambda content: content[:-1],
    "a bit flipped": lambda content: content[:-2] + bytes([content[-2] ^ 4]) + content[-1:],
    "zeros": lambda content: bytes(len(content)),
}
# The last byte of a manifest is a line break, so its loss is not tested.
UNDETECTED_BY_WRITE = [
    (RANK, "the last byte lost"),
    *((name, kind) for name in (RANK, MANIFEST) for kind in ("a bit flipped", "zeros")),
]


@given(case=st.sampled_from(UNDETECTED_BY_WRITE))
def falsify_files_are_read_back_before_the_rename(subject: Any, case: tuple[str, str]) -> None:
    name, kind = case
    with place(1) as directory:
        disk = ChangingDisk(name=name, change=CHANGES[kind])
        save = partial(subject.save_checkpoint, directory, manifest(2), tensors(2), disk=disk, keep=1)
        assert_refused(f"{kind} in {name}", save, kind=OutputError)
        assert_whole(directory, [[1]], f"with {kind} in {name}")


def falsify_killed_save_is_whole_or_absent(subject: Any) -> None:
    """Kill a save of step 3 before each operation on a file; steps 1 and 2 are saved already, and keep is 1."""

    def save(step: int) -> None:
        subject.save_checkpoint(directory, manifest(step), tensors(step), keep=1)

    # The number of operations is unknown: try 1, 2, ... until the save ends before the operation is reached.
    operation, outcome = 0, ""
    while outcome != "done":
        operation += 1
        with place(1, 2) as directory:
            when, outcome = f"killed before operation {operation}", ended_before(operation, directory, lambda: save(3))
            assert outcome in ("killed", "done"), (
                f"{when}: the child process ended with {outcome!r}; expected killed or done"
            )
            assert_whole(directory, [[1, 2], [1, 2, 3], [2, 3], [3]] if outcome == "killed" else [[3]], when)
            newest = checkpoint_name(RUN, saved_steps(directory, RUN)[-1])
            assert_equal(f"{when}, the latest", find_checkpoint(directory, RUN, "latest").name, newest)
            subject.sweep(directory)
            save(4)
            files = [name for name in names(directory) if not name.endswith("-latest")]
            assert_equal(f"{when}, files after a sweep and a save of step 4", files, [checkpoint_name(RUN, 4)])
    assert operation > 3, f"an uninterrupted save has {operation - 1} operations; expected two files and a rename"


@given(kib=st.integers(0, 400), more=st.integers(0, 3), free=st.integers(-3000, 3000))
@example(kib=1, more=0, free=-1)
@example(kib=1, more=0, free=0)
def falsify_space_is_checked(subject: Any, kib: int, more: int, free: int) -> None:
    """Save exactly if the free bytes are at least the needed bytes that the refusal names.

    The needed bytes must suffice, and exceed the bytes of the tensors by at most 66 KiB, for headers and manifest. The
    tensors have `kib` KiB of float32 and `more` bytes of booleans; `free` is relative to the needed bytes.
    """
    state = {"w": torch.zeros(kib * 256), "b": torch.zeros(more, dtype=torch.bool)}
    with place(1) as directory:
        before, empty = names(directory), ChangingDisk(0)
        save = partial(subject.save_checkpoint, directory, manifest(2), state)
        message = refusal(partial(save, disk=empty), OutputError)
        match = re.search(r"0 bytes are free, the checkpoint needs ([0-9,]+);", message)
        assert match, f"without free space, the save says {message!r}; expected the free and the needed bytes"
        assert_equal("bytes and files of a refused save", (empty.written, names(directory)), (0, before))
        needed = int(match[1].replace(",", ""))
        disk = ChangingDisk(needed + free)
        message = refusal(partial(save, disk=disk), OutputError)
        assert bool(message) == (free < 0), f"with {needed} + {free} bytes free, the save says {message!r}"
        if free >= 0:
            size = kib * 1024 + more
            assert size < disk.written <= needed, f"needed are {needed} bytes; {disk.written} were written"
            assert needed <= size + 2**16 + 2**11, f"needed are {needed} bytes, for tensors of {size} bytes"


OTHER_RUN = "ab"
"""The id of another run, which RUN matches if it is used as a glob pattern."""


@given(
    gaps=st.lists(st.integers(1, 9), min_size=1, max_size=6), keep=st.integers(0, 3), better=st.sets(st.integers(0, 5))
)
@example(gaps=[1, 1, 1], keep=0, better={0})
@example(gaps=[1, 2, 1, 3], keep=1, better={0, 2})
def falsify_last_and_best_stay(subject: Any, gaps: list[int], keep: int, better: set[int]) -> None:
    """better: indices of the steps with the best score so far."""

    def best_at(k: int) -> int | None:
        return max((steps[i] for i in better if i <= k), default=None)

    steps = list(itertools.accumulate(gaps))
    saved: list[int] = []
    with place() as directory:
        subject.save_checkpoint(directory, manifest(1, run=OTHER_RUN), tensors(1), keep=1)
        for k, step in enumerate(steps):
            chosen = best_at(k)
            subject.save_checkpoint(directory, manifest(step, best=chosen), tensors(step), keep=keep)
            # The last `keep` steps and the best are kept; all steps if keep is 0.
            saved = [s for s in (*saved, step) if keep == 0 or s == chosen or sum(t > s for t in (*saved, step)) < keep]
            assert_whole(directory, [saved], f"after step {step} of {steps}, keep {keep}, best {chosen}")
            _assert_latest_and_best(directory, step, chosen)
        moved = shutil.move(directory, directory.with_name("moved"))
        _assert_latest_and_best(moved, step, chosen)
        start = saved[len(saved) // 2]
        subject.rewind(moved, RUN, start)
        best_at_start = best_at(steps.index(start))
        _assert_latest_and_best(moved, start, best_at_start if best_at_start in saved else None)
        assert_equal(f"the checkpoints of run {OTHER_RUN}", saved_steps(moved, OTHER_RUN), [1])
        other = read_checkpoint(moved / checkpoint_name(OTHER_RUN, 1))
        assert_same(f"step 1 of run {OTHER_RUN}", other.tensors, tensors(1))


def _assert_latest_and_best(directory: Path, latest: int, best: int | None) -> None:
    """Assert the steps of the latest and the best checkpoint, by link and by `find_checkpoint`; None: no such one."""
    for name, step in (("latest", latest), ("best", best)):
        expected, link = step and directory / checkpoint_name(RUN, step), directory / f"{RUN}-{name}"
        assert_equal(f"the link of the {name}", link.resolve() if link.is_symlink() else None, expected)
        missing = refusal(lambda name=name: find_checkpoint(directory, RUN, name), CheckpointError)
        actual = None if missing else find_checkpoint(directory, RUN, name)
        assert_equal(f"the {name} checkpoint", actual, expected)


def falsify_links_are_not_trusted(subject: Any) -> None:
    """Put directories in the place of the links, so that they cannot be created; then links to another step."""
    with place() as directory:
        for name in ("latest", "best"):
            (directory / f"{RUN}-{name}").mkdir(parents=True)
            (directory / f"{RUN}-{name}" / "file").touch()
        for step in (1, 2, 3):
            subject.save_checkpoint(directory, manifest(step, best=2), tensors(step))
        assert_equal("partial files where a link cannot be made", _partial_files(directory), [])
        for case in ("directories in the place of the links", "links to step 1"):
            actual = [find_checkpoint(directory, RUN, wanted).name for wanted in ("latest", "best")]
            assert_equal(f"latest and best with {case}", actual, [checkpoint_name(RUN, step) for step in (3, 2)])
            for link in (directory / f"{RUN}-latest", directory / f"{RUN}-best"):
                shutil.rmtree(link) if case.startswith("dir") else link.unlink()
                link.symlink_to(checkpoint_name(RUN, 1))


@given(step=st.integers(0, 4))
def falsify_earlier_step_is_refused(subject: Any, step: int) -> None:
    with place(1, 3) as directory:
        before = contents(directory)
        save = partial(subject.save_checkpoint, directory, manifest(step), tensors(step), keep=1)
        message = refusal(save, CheckpointError)
        assert ("step 3" in message) == (step <= 3), f"a save of step {step} after step 3 says {message!r}"
        changed = sorted({str(path) for path, _ in before.items() ^ contents(directory).items()})
        assert step > 3 or not changed, f"the refused save of step {step} changed {changed}"


LEFTOVERS = (".x.7.partial", f".{RUN}-step9.123.partial", f".{RUN}-latest.5.partial")
OTHER_FILES = (".partial", "x.partial", ".x.partial", ".hidden", "file", f"{RUN}-step9.partial")


def falsify_leftovers_are_removed(subject: Any) -> None:
    with place(1) as directory:
        outside = directory.with_name("outside")
        # Also a directory of a killed process with our PID: in a container, PIDs repeat.
        leftover = directory / f".{checkpoint_name(RUN, 2)}.{os.getpid()}.partial"
        for folder in (outside, directory / LEFTOVERS[1], leftover):
            folder.mkdir()
            (folder / "file").touch()
        (directory / LEFTOVERS[2]).symlink_to(outside)
        for name in (LEFTOVERS[0], *OTHER_FILES):
            (directory / name).touch()
        expected = sorted({*names(directory)} - {*LEFTOVERS, leftover.name})
        subject.sweep(directory)
        assert_equal("files after a sweep", names(directory), expected)
        assert_equal("files of the directory that a partial link points to", names(outside), ["file"])
        leftover.mkdir()
        (leftover / "file").touch()
        (directory / f".{RUN}-latest.{os.getpid()}.partial").symlink_to("nowhere")
        subject.save_checkpoint(directory, manifest(2), tensors(2))
        assert_whole(directory, [[1, 2]], "after a save beside leftovers")
        _assert_latest_and_best(directory, 2, None)
