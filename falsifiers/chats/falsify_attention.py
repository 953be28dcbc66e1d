"""Attacks on attention document by document. The subject has `by_document`, as `huggingface.attention` does.

The oracle sums over the tokens of a document in float64, one query at a time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

HEADS, WIDTH = 2, 3
ALLOWED = 1e-12


def _expected(query: list[Any], key: list[Any], value: list[Any], begin: int, at: int) -> list[float]:
    """Return the attention of one head to the tokens from `begin` to `at`."""
    places = range(begin, at + 1)
    scores = [math.fsum(a * b for a, b in zip(query[at], key[n], strict=True)) / math.sqrt(WIDTH) for n in places]
    shares = [math.exp(each - max(scores)) for each in scores]
    return [math.fsum(s * value[n][w] for s, n in zip(shares, places, strict=True)) / sum(shares) for w in range(WIDTH)]


@given(
    rows=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3), seed=st.integers(0, 99)
)
def falsify_documents_are_attended_alone(subject: Any, rows: list[list[int]], seed: int) -> None:
    """Rows of documents of these lengths, filled with one more document."""
    length = max(map(sum, rows))
    rows = [[*row, length - sum(row)] if sum(row) < length else row for row in rows]
    positions = torch.tensor([[n for size in row for n in range(size)] for row in rows])
    generator = torch.Generator().manual_seed(seed)
    shape = (len(rows), HEADS, length, WIDTH)
    states = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]
    attend = torch.nn.functional.scaled_dot_product_attention
    found = subject.by_document(lambda *qkv: attend(*qkv, is_causal=True).transpose(1, 2), *states, positions)
    assert found.shape == (len(rows), length, HEADS, WIDTH), f"the shape is {list(found.shape)}"
    for b, row in enumerate(positions.tolist()):
        for head in range(HEADS):
            query, key, value = (each[b, head].tolist() for each in states)
            for at, position in enumerate(row):
                wanted = _expected(query, key, value, at - position, at)
                seen = found[b, at, head].tolist()
                worst = max(abs(x - y) for x, y in zip(seen, wanted, strict=True))
                assert worst <= ALLOWED, f"token {at} of row {b} attends to {seen}; expected {wanted}"
