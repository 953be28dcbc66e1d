"""Attacks on sequences and their order. The subject is `reference_trainer.data.text`, or has its names."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.fake_device import DEVICE, FakeDevice
from falsifiers.support.texts import epoch, file_of, sequences_of
from reference_trainer.data.text import Sequences, epoch_order


@given(
    size=st.integers(2, 200),
    length=st.integers(2, 9),
    batch_size=st.integers(1, 6),
    seed=st.integers(0, 99),
    number=st.integers(1, 9),
    data=st.data(),
)
def falsify_every_byte_is_predicted_once(
    subject: Any, device: str, size: int, length: int, batch_size: int, seed: int, number: int, data: st.DataObject
) -> None:
    text = torch.randperm(256, generator=torch.Generator().manual_seed(seed))[: max(size, length)].to(torch.uint8)
    place = {int(byte): k for k, byte in enumerate(text.tolist())}
    sequences = sequences_of(subject, text, length, batch_size, device)
    order = subject.epoch_order(seed, number, len(sequences))
    positions = data.draw(st.permutations(range(1, sequences.batches + 1)), label="order of requests")
    batches = [batch for _, batch in sorted((position, sequences.batch(order, position)) for position in positions)]
    _assert_placed(batches, device)
    rows = [[place[byte] for byte in row] for batch in batches for row in batch.tokens.tolist()]
    apart = [row for row in rows if row != list(range(row[0], row[0] + length))]
    assert not apart, f"sequences of {length} hold the bytes at {apart}"
    count = (len(text) - 1) // (length - 1)
    assert sorted(k for row in rows for k in row[1:]) == list(range(1, count * (length - 1) + 1)), (
        f"of {len(text)} bytes, {count} sequences of {length} predict each but the first once; they start at {rows}"
    )
    sizes, expected = (
        [len(b.tokens) for b in batches],
        [min(batch_size, count - k) for k in range(0, count, batch_size)],
    )
    assert sizes == expected, f"batches of {count} sequences hold {sizes}; expected {expected}"


def _assert_placed(batches: list[Any], device: str) -> None:
    """Assert that tokens are labels as well, int64 on the device."""
    for position, batch in enumerate(batches, 1):
        kinds = [(each.dtype, each.device.type) for each in (batch.tokens, batch.labels)]
        assert kinds == [(torch.int64, device)] * 2, f"batch {position} is {kinds}; expected int64 on {device}"
        assert torch.equal(batch.tokens, batch.labels), (
            f"labels of batch {position} are {batch.labels.tolist()}, tokens {batch.tokens.tolist()}"
        )


@given(size=st.integers(9, 60), batch_size=st.integers(1, 6))
def falsify_batches_are_on_the_device(subject: Any, size: int, batch_size: int) -> None:
    order = torch.arange((size - 1) // 4)
    with FakeDevice():
        sequences = sequences_of(subject, torch.zeros(size, dtype=torch.uint8), 5, batch_size, DEVICE)
        batches = [sequences.batch(order, position) for position in range(1, sequences.batches + 1)]
    seen = {each.device.type for batch in batches for each in (batch.tokens, batch.labels)}
    assert seen == {DEVICE}, f"{len(batches)} batches are on {sorted(seen)}; expected {DEVICE}"


@given(
    asked=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=6),
    drawn=st.integers(0, 3),
)
def falsify_order_depends_only_on_its_arguments(subject: Any, asked: list[tuple[int, int, int]], drawn: int) -> None:
    first = {arguments: subject.epoch_order(*arguments).tolist() for arguments in asked}
    for (seed, number, count), order in first.items():
        assert sorted(order) == list(range(count)), f"the order of {count} in epoch {number} of seed {seed} is {order}"
    torch.rand(drawn)
    before = torch.get_rng_state()
    subject.epoch_order(1_000_001, 1, 3)  # as another run in this process would
    for arguments in reversed(asked):
        with torch.device("meta"):
            again = subject.epoch_order(*arguments)
        assert again.device.type == "cpu", f"under another default device the order is on {again.device}"
        assert again.tolist() == first[arguments], (
            f"epoch_order{arguments} was {first[arguments]}, and is {again.tolist()} after other calls"
        )
    assert torch.equal(before, torch.get_rng_state()), "epoch_order moved the process's generator"


def falsify_orders_differ_by_seed_and_epoch(subject: Any) -> None:
    seen: dict[tuple[int, ...], tuple[int, int]] = {}
    for seed in [*range(12), *range(110, 122)]:
        for number in [*range(1, 13), *range(100, 112)]:
            order = tuple(subject.epoch_order(seed, number, 40).tolist())
            other = seen.setdefault(order, (seed, number))
            assert other == (seed, number), f"seeds and epochs {other} and {(seed, number)} have the same order"


@given(size=st.integers(41, 400), length=st.integers(2, 5), seed=st.integers(0, 9))
def falsify_held_back_bytes_are_never_trained_on(subject: Any, size: int, length: int, seed: int) -> None:
    cut = size - -(-size // 10)
    content = bytes([*(k % 128 for k in range(cut)), *(128 + k % 128 for k in range(size - cut))])
    with file_of(content) as path:
        text = subject.read_text(path, length)
        for number in (1, 2):
            for batch in epoch(subject, sequences_of(subject, text.training, length), seed, number):
                assert int(batch.tokens.max()) < 128, f"held-back bytes in a training batch: {batch.tokens.tolist()}"
        for batch in epoch(subject, sequences_of(subject, text.held_back, length), seed):
            assert int(batch.tokens.min()) >= 128, f"trained bytes in a held-back batch: {batch.tokens.tolist()}"
        parts = bytes(text.training.tolist()) + bytes(text.held_back.tolist())
    assert parts == content, f"the parts hold {len(parts)} bytes and differ from the text of {size}"


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
