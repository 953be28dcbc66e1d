"""Attacks on the order in which a student reads its text. The subject is `pipeline.distill`."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from falsifiers.support.small_runs import run, small

LENGTH, COUNT = 8, 12
"""Of 90 bytes to learn from: a byte of context, and 7 more in each sequence of length 8."""


class _Read:
    """The sequences that each module read in train mode, observed by torch's own hook."""

    def __init__(self) -> None:
        self.starts: list[tuple[nn.Module, list[int]]] = []

    def note(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if module.training and arguments and arguments[0].dtype == torch.int64 and arguments[0].dim() == 2:
            self.starts.append((module, [row[0] // (LENGTH - 1) for row in arguments[0].tolist()]))

    def of(self, module: nn.Module) -> list[int]:
        """Return the sequences that `module` read; each byte of the text is its own offset."""
        return [sequence for reader, batch in self.starts if reader is module for sequence in batch]


def _order(seed: int, epoch: int) -> list[int]:
    """As torch draws it by the first seven bytes of `printf SEED/EPOCH | sha256sum`."""
    drawn_by = int(hashlib.sha256(b"%d/%d" % (seed, epoch)).hexdigest()[:14], 16)
    order: list[int] = torch.randperm(COUNT, generator=torch.Generator().manual_seed(drawn_by)).tolist()
    return order


@given(seed=st.integers(0, 9), epochs=st.integers(2, 3), batch_size=st.sampled_from([4, 5, 12]))
def falsify_student_reads_in_order_of_seed_and_epoch(subject: Any, seed: int, epochs: int, batch_size: int) -> None:
    read = _Read()
    hook = register_module_forward_pre_hook(read.note)
    try:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            changes = {"length": LENGTH, "seed": seed, "epochs": epochs, "batch_size": batch_size}
            student = run(subject, small(directory, out=directory / "out", **changes)).student
    finally:
        hook.remove()
    seen = read.of(student)
    assert len(seen) == epochs * COUNT, f"a student read {len(seen)} sequences in {epochs} epochs of {COUNT}"
    for epoch in range(1, epochs + 1):
        order, expected = seen[(epoch - 1) * COUNT : epoch * COUNT], _order(seed, epoch)
        assert order == expected, (
            f"in epoch {epoch} of seed {seed} the student reads the sequences {order}; expected {expected}"
        )
