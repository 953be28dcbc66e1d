"""Attacks on the memory that hooks report. The subject is `reference_trainer.training.memory`."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20


@given(mib=st.integers(32, 128))
def falsify_memory_is_what_is_held(subject: Any, mib: int) -> None:
    """It grows and falls with what the process holds, by at least nine tenths; a GPU has its own."""
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    before = subject.memory_bytes(cpu)
    held = bytearray(b"1") * (mib * MIB)
    during = subject.memory_bytes(cpu)
    del held
    after = subject.memory_bytes(cpu)
    grown, fallen = during - before, during - after
    assert min(grown, fallen) >= 0.9 * mib * MIB, f"{mib} MiB are held, then not: {before}, {during}, {after} bytes"
    got, expected = subject.memory_bytes(cuda), torch.cuda.memory_allocated(cuda)
    assert got == expected, f"{got} bytes of the GPU are reported; PyTorch has allocated {expected}"
