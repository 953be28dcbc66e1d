"""An attack on the memory that a run reports. The subject is `training.memory`."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20


@given(mib=st.integers(32, 128), on_gpus=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)))
def falsify_memory_is_what_is_held(subject: Any, mib: int, on_gpus: tuple[int, int]) -> None:
    cpu = torch.device("cpu")
    before = subject.memory_bytes(cpu)
    held = bytearray(b"1") * (mib * MIB)
    during = subject.memory_bytes(cpu)
    del held
    after = subject.memory_bytes(cpu)
    grown, fallen = during - before, during - after
    assert min(grown, fallen) >= 0.9 * mib * MIB, f"{mib} MiB are held, then not: {before}, {during}, {after} bytes"
    with mock.patch.object(torch.cuda, "memory_allocated", lambda device=None: on_gpus[torch.device(device).index]):
        got = [subject.memory_bytes(torch.device("cuda", index)) for index in range(2)]
    assert got == [*on_gpus], f"{got} bytes of two GPUs are reported; PyTorch has allocated {on_gpus}"
