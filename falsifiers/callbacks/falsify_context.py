"""Attacks on what a run reports: the contexts that callbacks receive, and the result of the run.

The subject is that of `real_run`, or `training.memory`. The expected numbers are those of a plain loop.
"""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.plain_loop import ByHand, RealRun, Text, assert_same_fields, same, texts


@given(text=texts())
def falsify_context_fields(subject: Any, device: str, text: Text) -> None:
    seen, expected = RealRun(subject, text, device), ByHand(text, device)
    assert seen.asked == expected.asked, f"batches were requested as {seen.asked}; expected {expected.asked}"
    every = [[m for m in side.moments if m.event != "on_epoch_end"] for side in (seen, expected)]
    assert_same_fields(*every, ("step", "epoch", "loss", "learning_rate", "best_loss", "elapsed_s", "tokens"))
    _assert_result(seen.result, expected)


def _assert_result(result: Any, by_hand: ByHand) -> None:
    scored = by_hand.scored or [None]
    expected = {
        "initial_loss": scored[0],
        "final_loss": scored[-1],
        "best_loss": by_hand.best,
        "finite": all(map(math.isfinite, by_hand.scored)),
        "steps_completed": by_hand.step,
        "tokens": by_hand.tokens,
        "elapsed_s": by_hand.elapsed,
        "stopped": False,
        "steps_per_s": by_hand.step / max(by_hand.elapsed, 1e-9),
    }
    for name, wanted in expected.items():
        assert same(getattr(result, name), wanted), f"{name} is {getattr(result, name)}; expected {wanted}"


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
