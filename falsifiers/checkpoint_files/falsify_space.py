"""Attacks on saving to a disk without space. The subject is `storage.checkpoints`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import manifest, names, place
from reference_trainer.errors import OutputError
from reference_trainer.storage.checkpoints import Disk


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
