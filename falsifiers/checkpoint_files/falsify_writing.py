"""Attacks on the saving of checkpoints, also without space. The subject is `storage.checkpoints`, or has its names."""

import errno
import itertools
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import RANK, RUN, assert_same, assert_whole, manifest, names, place, tensors
from falsifiers.support.interruptions import ended_before
from falsifiers.support.oracles import assert_refused
from reference_trainer.errors import OutputError
from reference_trainer.storage.checkpoints import MANIFEST, Disk, find_checkpoint, read_checkpoint, saved_steps
from reference_trainer.storage.retention import checkpoint_name

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
SHAPES = ((), (0,), (3,), (2, 3))


@given(kinds=st.lists(st.tuples(st.sampled_from(DTYPES), st.sampled_from(SHAPES)), max_size=4), seed=st.integers(0, 99))
def falsify_checkpoint_is_read_as_it_was_saved(subject: Any, kinds: list[Any], seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    each = {f"t{k}": _tensor(dtype, shape, numbers) for k, (dtype, shape) in enumerate(kinds)}
    given_tensors = {**each, **{f"{name}.shared": value for name, value in each.items()}}
    with place() as directory:
        path = subject.save_checkpoint(directory, manifest(3, best=3), given_tensors)
        read = read_checkpoint(path)
        assert_same("saved and read", read.tensors, given_tensors)
        seen = read.manifest.model_dump(exclude={"files", "sha256"})
        expected = manifest(3, best=3).model_dump(exclude={"files", "sha256"})
        assert seen == expected, f"the manifest is {seen}; expected {expected}"
        assert names(path) == [MANIFEST, RANK], f"a checkpoint has the files {names(path)}"


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], numbers: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(shape, generator=numbers)
    drawn = torch.where(drawn > 1, torch.nan, drawn) if dtype.is_floating_point else drawn
    return drawn.to(dtype).T if len(shape) == 2 else drawn.to(dtype)


class Recorder(Disk):
    """A disk that records its operations, with what is in place under the final name at each; `act` comes first."""

    def __init__(self, final: Path, act: Callable[[int], None] = lambda number: None) -> None:
        self.final, self.act, self.log = final, act, list[tuple[str, str, bool]]()

    def _note(self, what: str, path: Path) -> None:
        kind = "the directory" if path == self.final.parent else "the checkpoint" if path.is_dir() else path.name
        self.log.append((what, kind, self.final.exists()))
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
    assert disk.log == ORDER, f"operations, and whether the checkpoint is in place: {disk.log}; expected {ORDER}"


NUMBERS = (errno.ENOSPC, errno.EIO)


@given(at=st.integers(1, len(ORDER)), number=st.sampled_from(NUMBERS))
def falsify_failed_save_keeps_the_older_ones(subject: Any, at: int, number: int) -> None:
    """If only the last sync fails, the new one is there and whole too."""

    def fail(count: int) -> None:
        if count == at:
            raise OSError(number, os.strerror(number))

    with place(1, 2) as directory:
        final = directory / checkpoint_name(RUN, 3)
        save = partial(subject.save_checkpoint, directory, manifest(3), tensors(3), disk=Recorder(final, fail))
        when = f"where operation {at} fails with {os.strerror(number)!r}"
        assert_refused(when, save, str(final), os.strerror(number), kind=OutputError)
        assert_whole(directory, [[1, 2, 3] if at == len(ORDER) else [1, 2]], when)
        odd = [name for name in names(directory) if name.endswith(".partial")]
        assert not odd, f"{when}, {odd} is left"


class Careless(Disk):
    """A disk that stores other bytes than it was given."""

    def __init__(self, name: str, change: Callable[[bytes], bytes]) -> None:
        self.name, self.change = name, change

    def write(self, path: Path, content: bytes) -> None:
        super().write(path, self.change(content) if path.name == self.name else content)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "the last byte lost": lambda content: content[:-1],
    "a bit flipped": lambda content: content[:-2] + bytes([content[-2] ^ 4]) + content[-1:],
    "zeros": lambda content: bytes(len(content)),
}


@given(name=st.sampled_from([RANK, MANIFEST]), how=st.sampled_from(list(CHANGES)))
def falsify_files_are_read_back_before_the_rename(subject: Any, name: str, how: str) -> None:
    if name == MANIFEST and how == "the last byte lost":
        return  # the end of the last line means nothing
    with place(1) as directory:
        disk = Careless(name, CHANGES[how])
        save = partial(subject.save_checkpoint, directory, manifest(2), tensors(2), disk=disk, keep=1)
        assert_refused(f"{how} in {name}", save, kind=OutputError)
        assert_whole(directory, [[1]], f"with {how} in {name}")


def falsify_killed_save_is_whole_or_absent(subject: Any) -> None:
    """Killed before any operation on a file, where steps 1 and 2 are and only the newest is kept."""
    for moment in itertools.count(1):
        if _killed(subject, f"killed before operation {moment}", moment) == "done":
            break


def _killed(subject: Any, when: str, moment: int) -> str:
    def save(step: int) -> None:
        subject.save_checkpoint(directory, manifest(step), tensors(step), keep=1)

    with place(1, 2) as directory:
        ended = ended_before(moment, directory, lambda: save(3))
        assert ended in ("killed", "done"), f"{when}, the save ended in another way: {ended}"
        expected = [[1, 2], [1, 2, 3], [2, 3], [3]] if ended == "killed" else [[3]]
        assert_whole(directory, expected, when)
        latest = find_checkpoint(directory, RUN, "latest").name
        newest = checkpoint_name(RUN, saved_steps(directory, RUN)[-1])
        assert latest == newest, f"{when}, the latest is {latest}; expected {newest}"
        subject.sweep(directory)
        save(4)
        seen = [name for name in names(directory) if not name.endswith("-latest")]
        assert seen == [checkpoint_name(RUN, 4)], f"{when}, then swept and saved step 4: {seen} is left"
    return ended


class Small(Disk):
    """A disk with so many bytes free, which counts what is written."""

    def __init__(self, free: int) -> None:
        self.bytes, self.written = free, 0

    def free(self, directory: Path) -> int:
        assert directory.is_dir(), f"the space of {directory} is asked for, which is no directory"
        return self.bytes

    def write(self, path: Path, content: bytes) -> None:
        self.written += len(content)
        super().write(path, content)


@given(kib=st.integers(0, 400), more=st.integers(0, 3), free=st.integers(-3000, 3000))
def falsify_space_is_checked(subject: Any, kib: int, more: int, free: int) -> None:
    """Saved exactly where what the refusal calls needed is free; that is enough, and at most 64 KiB too much.

    The tensors have `kib` KiB of float32, and `more` bytes of booleans.
    """
    given_tensors = {"w": torch.zeros(kib * 256), "b": torch.zeros(more, dtype=torch.bool)}
    with place(1) as directory:
        before, empty = names(directory), Small(0)
        said = _refusal(subject, directory, given_tensors, empty)
        found = re.search(r"0 bytes are free, the checkpoint needs ([0-9,]+);", said)
        assert found, f"without space, the refusal is {said!r}"
        needed = int(found[1].replace(",", ""))
        assert empty.written == 0 and names(directory) == before, f"a refused save wrote {empty.written} bytes"
        disk = Small(needed + free)
        said = _refusal(subject, directory, given_tensors, disk)
        assert bool(said) == (free < 0), f"with {free} bytes more than needed free, the save says {said!r}"
        if free >= 0:
            size = kib * 1024 + more
            assert size < disk.written <= needed, f"{disk.written} bytes are written, {needed} are called needed"
            assert needed <= size + 2**16 + 2**11, f"{needed} bytes are called needed for tensors of {size}"


def _refusal(subject: Any, directory: Path, given_tensors: Any, disk: Disk) -> str:
    try:
        subject.save_checkpoint(directory, manifest(2), given_tensors, disk=disk)
    except OutputError as error:
        return str(error)
    return ""
