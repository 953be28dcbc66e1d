"""Attacks on texts beyond 2 GiB. The subject is `reference_trainer.data.text`, or has its names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.texts import sequences_of

GIB = 2**30
MARK = bytes(range(1, 9))


@contextmanager
def _sparse_text(size: int, marked: list[int]) -> Iterator[Tensor]:
    """A mapped text of `size` zero bytes with `MARK` at each of the `marked` offsets; it occupies only these pages."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "text")
        with path.open("wb") as file:
            os.truncate(file.fileno(), size)
            for offset in marked:
                file.seek(offset)
                file.write(MARK)
        yield torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)


@given(
    gib=st.sampled_from([2, 4, 8]),
    above=st.integers(0, 2**28),
    length=st.integers(2**17, 2**18),
    seed=st.integers(0, 99),
    number=st.integers(1, 9),
)
def falsify_sequences_beyond_two_gigabytes(
    subject: Any, gib: int, above: int, length: int, seed: int, number: int
) -> None:
    """A sequence is read from its number times (length - 1), also where that exceeds 2^31, 2^32 and 2^33.

    int32 and uint32 wrap around there; float32 rounds to a multiple of 128 or more.
    """
    size = gib * GIB + above + 2 * length
    count = (size - 1) // (length - 1)
    order = subject.epoch_order(seed, number, count)
    asked = [order.tolist().index(sequence) for sequence in (count - 1, gib * GIB // (length - 1) + 1)]
    expected = [int(order[index]) * (length - 1) for index in asked]
    with _sparse_text(size, expected) as text:
        sequences = sequences_of(subject, text, length, batch_size=1)
        assert len(sequences) == count, f"{size} bytes have {len(sequences)} sequences of {length}; expected {count}"
        for index, offset in zip(asked, expected, strict=True):
            tokens = sequences.batch(order, index + 1).tokens
            marks = tokens[0].nonzero().flatten().tolist()
            assert tokens.shape == (1, length) and tokens[0, : len(MARK)].tolist() == list(MARK), (
                f"sequence {int(order[index])} of {length} bytes is not read from offset {offset:,}: its tokens have "
                f"the shape {list(tokens.shape)}, and the {len(MARK)} marked bytes of that offset are at {marks}"
            )
