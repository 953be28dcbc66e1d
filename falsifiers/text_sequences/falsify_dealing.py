"""Attacks on how the batches of an epoch are dealt to ranks. The subject is `reference_trainer.data.epochs`."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from reference_trainer.data.text import Sequences, epoch_order

LENGTH, IGNORED = 4, -100


def _sequences(count: int, batch_size: int) -> Sequences:
    """Return `count` sequences of a text without repeated bytes: the first byte of each identifies it."""
    text = torch.arange(count * (LENGTH - 1) + 1, dtype=torch.uint8)
    return Sequences(bytes_N=text, length=LENGTH, batch_size=batch_size, device=torch.device("cpu"))


def _numbers(tokens_BT: Tensor) -> list[int]:
    return [int(first) // (LENGTH - 1) for first in tokens_BT[:, 0]]


@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 5),
    world_size=st.integers(1, 4),
    seed=st.integers(0, 9),
    epoch=st.integers(1, 5),
)
def falsify_each_sequence_is_dealt_to_one_rank(
    subject: Any, count: int, batch_size: int, world_size: int, seed: int, epoch: int
) -> None:
    sequences = _sequences(count, batch_size)
    ranks = [
        subject.ShuffledBatches(sequences=sequences, seed=seed, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    rounds = {each.batches for each in ranks}
    expected = math.ceil(math.ceil(count / batch_size) / world_size)
    assert rounds == {expected}, f"ranks have {rounds} batches of an epoch; expected {expected} each"
    dealt = [each.batch(epoch, k) for k in range(1, expected + 1) for each in ranks]
    scored = [number for batch in dealt if (batch.labels != IGNORED).any() for number in _numbers(batch.tokens)]
    order = epoch_order(seed, epoch, count).tolist()
    assert scored == order, f"{world_size} ranks read the sequences {scored}; expected {order}"
    idle = [batch for batch in dealt if not (batch.labels != IGNORED).any()]
    assert all(len(batch.tokens) == 1 for batch in idle), "a rank without a batch left computes more than one sequence"
