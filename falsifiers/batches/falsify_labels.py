"""Attacks on labels and masks of tokens. The subject is `reference_trainer.data.labels`, or has its names."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles

NOT = -100  # not predicted


INTEGERS = st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])


@st.composite
def rows(draw: st.DrawFn) -> tuple[Tensor, Tensor | None, int | None, Tensor | None]:
    """Draw tokens [B, T], and segments, a padding id and prompts, each of which may be None."""
    B, T = draw(st.integers(0, 2)), draw(st.integers(0, 6))

    def drawn(largest: int) -> Tensor:
        values = draw(st.lists(st.integers(0, largest), min_size=B * T, max_size=B * T))
        return torch.tensor(values, dtype=torch.int64).reshape(B, T)

    tokens = drawn(3).to(draw(INTEGERS))
    segments = drawn(2).to(draw(INTEGERS)) if draw(st.booleans()) else None
    padding_id = draw(st.none() | st.integers(0, 3))
    return tokens, segments, padding_id, drawn(1).bool() if draw(st.booleans()) else None


def _predicted(row: tuple[Tensor, Tensor | None, int | None, Tensor | None], b: int, i: int) -> bool:
    """Return whether tokens[b, i] is predicted, from the rule."""
    tokens, segments, padding_id, prompts = row
    if i == 0 or (prompts is not None and bool(prompts[b, i])):
        return False
    if segments is not None:
        return int(segments[b, i]) != 0 and int(segments[b, i]) == int(segments[b, i - 1])
    return padding_id is None or (int(tokens[b, i]) != padding_id and int(tokens[b, i - 1]) != padding_id)


@given(row=rows())
def falsify_labels_follow_the_rule(
    subject: Any, device: str, row: tuple[Tensor, Tensor | None, int | None, Tensor | None]
) -> None:
    tokens, segments, padding_id, prompts = row
    before = tokens.clone()
    moved = [None if each is None else each.to(device) for each in (tokens, segments, prompts)]
    seen = subject.create_labels(moved[0], moved[1], padding_id=padding_id, prompts=moved[2])
    expected = torch.full(tokens.shape, NOT)
    for b in range(tokens.shape[0]):
        for i in range(tokens.shape[1]):
            expected[b, i] = int(tokens[b, i]) if _predicted(row, b, i) else NOT
    kind = seen.dtype, seen.device.type
    assert kind == (torch.int64, device), f"labels are {kind}; expected int64 on {device}"
    assert torch.equal(seen.cpu(), expected), f"labels of {row} are {seen.tolist()}; expected {expected.tolist()}"
    assert torch.equal(moved[0].cpu(), before), f"tokens changed from {before.tolist()} to {moved[0].tolist()}"


def falsify_other_shapes_are_refused(subject: Any) -> None:
    tokens = torch.tensor([[1, 2, 3], [1, 2, 3]])
    for name in ("segments", "prompts"):
        for shape in ((1, 3), (3,), (2, 2)):
            other = torch.ones(shape, dtype=torch.bool)
            call = partial(subject.create_labels, tokens, **{name: other})
            oracles.assert_refused(f"{name} of shape {list(shape)}", call, name, "[2, 3]", str(list(shape)))
