"""Attacks on text files, their sequences and orders, and how these are dealt to ranks."""

import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import epoch, file_of, sequences_of
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
    # No byte occurs twice in the text, so each byte identifies its offset.
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
        assert torch.equal(batch.tokens, batch.labels), f"batch {position}: tokens and labels differ"


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


@given(content=st.binary(min_size=11, max_size=300))
def falsify_tokens_are_the_bytes(subject: Any, content: bytes) -> None:
    length = 2
    with file_of(content) as path:
        text = subject.read_text(path, length)
        read = [*text.training.tolist(), *text.held_back.tolist()]
        sequences = sequences_of(subject, text.training, length)
        tokens = {int(x) for batch in epoch(subject, sequences) for x in batch.tokens.flatten()}
    assert read == list(content), f"read {read} from a file of {list(content)}"
    assert tokens == set(content[: len(text.training)]), f"tokens {sorted(tokens)} of the bytes {sorted(set(content))}"
    expected = hashlib.sha256(content).hexdigest()
    assert text.digest == expected, f"the digest is {text.digest}, SHA-256 of the file is {expected}"
    assert text.name == str(path), f"the text is called {text.name!r}, expected the text {str(path)!r}"


def falsify_packaged_text_is_the_default(subject: Any) -> None:
    text, content = subject.read_text(None, 64), subject.packaged_text()
    assert bytes(text.training.tolist()) + bytes(text.held_back.tolist()) == content, "another text"
    assert text.digest == hashlib.sha256(content).hexdigest(), f"the digest {text.digest} is of something else"
    assert content.count(b" the ") > 2000, "the packaged text is not English"


@given(length=st.integers(2, 300) | st.integers(300, 10**5))
def falsify_minimum_size_is_the_minimum(subject: Any, length: int) -> None:
    fewest = 10 * (length - 1) + 1
    with file_of(b"") as path:
        os.truncate(path, fewest - 1)
        assert_refused(f"{fewest - 1} bytes, sequences of {length}", lambda: subject.read_text(path, length))
        os.truncate(path, fewest)
        text = subject.read_text(path, length)
    counts = [len(sequences_of(subject, part, length)) for part in (text.training, text.held_back)]
    assert min(counts) >= 1, f"of {fewest} bytes, the parts have {counts} sequences of {length}"


UNREADABLE: dict[str, Callable[[Path], Path]] = {
    "a directory": lambda path: path.parent,
    "nothing": lambda path: path / "missing",
    "a device": lambda path: Path("/dev/zero"),
    "an unreadable file": lambda path: Path("/proc/self/mem"),
}


@given(kind=st.sampled_from(list(UNREADABLE)))
def falsify_unreadable_files_are_refused(subject: Any, kind: str) -> None:
    with file_of(b"") as empty:
        for what, path in (("an empty file", empty), (kind, UNREADABLE[kind](empty))):
            assert_refused(what, lambda path=path: subject.read_text(path, 8))
