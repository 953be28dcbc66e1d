"""Attacks on saving to a disk without space, and on what a failed save says. The subject is `storage.checkpoints`."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import RANK, RUN, manifest, names, place, tensors
from reference_trainer.errors import OutputError
from reference_trainer.storage.checkpoint_files import saved_steps
from reference_trainer.storage.checkpoints import Disk
from reference_trainer.storage.retention import checkpoint_name


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


def falsify_space_for_many_tensors_is_checked(subject: Any) -> None:
    """Of 2,000 tensors of one number, whose names take more than they do, the whole file counts."""
    many = {f"t{number:04d}": torch.zeros(1) for number in range(2000)}
    with place(1) as directory:
        enough = Small(2**30)
        assert _refusal(subject, directory, many, enough) == "", "a save is refused although 1 GiB is free"
    with place(1) as directory:
        little = Small(enough.written - 1)
        said = _refusal(subject, directory, many, little)
        assert said, f"{enough.written} bytes are saved where {little.bytes} are free"


def _refusal(subject: Any, directory: Path, given_tensors: Any, disk: Disk) -> str:
    try:
        subject.save_checkpoint(directory, manifest(2), given_tensors, disk=disk)
    except OutputError as error:
        return str(error)
    return ""


class Full(Disk):
    """A disk whose operation `what` fails."""

    def __init__(self, what: str) -> None:
        self.what = what

    def write(self, path: Path, content: bytes) -> None:
        self._fail("write")
        super().write(path, content)

    def sync(self, path: Path) -> None:
        self._fail("sync the directory" if path.name == "checkpoints" else "sync")
        super().sync(path)

    def _fail(self, what: str) -> None:
        if what == self.what:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cut(directory: Path) -> None:
    path = directory / checkpoint_name(RUN, 2) / RANK
    path.write_bytes(path.read_bytes()[:-1])


def falsify_failed_save_says_what_is_left(subject: Any) -> None:
    name = checkpoint_name(RUN, 2)
    cases: dict[str, tuple[tuple[int, ...], str, Any, str]] = {
        "no other": ((), "write", None, "there is no other checkpoint"),
        "a whole one": ((1, 2), "sync", None, f"the newest checkpoint, {name}, is whole"),
        "a cut one": ((1, 2), "write", _cut, "the newest checkpoint is damaged"),
        "one without a manifest": (
            (1, 2),
            "write",
            lambda d: (d / name / "manifest.json").write_text("{"),
            "the newest checkpoint is damaged",
        ),
        "the new one": ((1, 2), "sync the directory", None, f"{checkpoint_name(RUN, 3)}, is whole"),
    }
    for kind, (steps, what, damage, words) in cases.items():
        with place(*steps) as directory:
            if damage is not None:
                damage(directory)
            said = ""
            try:
                subject.save_checkpoint(directory, manifest(3), tensors(3), disk=Full(what))
            except OutputError as error:
                said = str(error)
            assert words in said and "No space left" in said, f"{kind}: a failed save says {said!r}; expected {words!r}"
            assert kind != "a cut one" or RANK in said, f"{kind}: the refusal does not name the file: {said!r}"
            there = saved_steps(directory, RUN)
            shutil.rmtree(directory, ignore_errors=True)
            assert there[:2] == list(steps), f"{kind}: the checkpoints {there} are left"
