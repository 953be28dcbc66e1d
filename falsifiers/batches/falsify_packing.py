"""Attacks on the rows of padded and packed batches, their labels and masks. Subjects: `data.batches`, `data.labels`."""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles

SIZES = st.lists(st.integers(0, 6), max_size=9)


@given(sizes=SIZES, room=st.integers(0, 8))
@example(sizes=[3, 3, 1], room=1)
def falsify_first_row_with_room(subject: Any, sizes: list[int], room: int) -> None:
    capacity = max(sizes, default=0) + room
    rows = subject.first_fit(sizes, capacity)
    of = f"sizes {sizes} in rows of {capacity} are placed as {rows}"
    assert sorted(index for row in rows for index in row) == list(range(len(sizes))), f"{of}: not each index once"
    assert all(row == sorted(row) and row for row in rows), f"{of}: a row is empty or not in the order of the sizes"
    assert [row[0] for row in rows] == sorted(row[0] for row in rows), f"{of}: the rows are not in order"
    loads = [sum(sizes[index] for index in row) for row in rows]
    assert all(load <= capacity for load in loads), f"{of}: the rows hold {loads}"
    for number, row in enumerate(rows):
        for index in row:
            before = [sum(sizes[other] for other in earlier if other < index) for earlier in rows[:number]]
            roomy = [load + sizes[index] <= capacity for load in before]
            assert not any(roomy), f"{of}: index {index} fits into the earlier row {roomy.index(True)}"


@given(sizes=SIZES, room=st.integers(0, 8), surplus=st.integers(1, 3), at=st.integers(0, 9))
def falsify_longer_documents_are_refused(subject: Any, sizes: list[int], room: int, surplus: int, at: int) -> None:
    capacity = max(sizes, default=0) + room
    at = min(at, len(sizes))
    sizes = [*sizes[:at], capacity + surplus, *sizes[at:]]
    made = [subject.Document(torch.zeros(size, dtype=torch.int64)) for size in sizes]
    words = (f"document {at} has {capacity + surplus} tokens", f"a row {capacity};")
    for call in (
        lambda: subject.first_fit(sizes, capacity),
        lambda: subject.pack_documents(made, length=capacity, padding_id=0),
    ):
        oracles.assert_refused(f"sizes {sizes} in rows of {capacity}", call, *words)


@given(size=st.integers(0, 20), length=st.integers(2, 7), data=st.data())
def falsify_split_documents(subject: Any, size: int, length: int, data: st.DataObject) -> None:
    """No token occurs twice, so each identifies its position."""
    prompt = data.draw(st.integers(0, size), label="prompt")
    pieces = subject.split_document(subject.Document(torch.arange(size), prompt), length)
    seen = [(piece.tokens.tolist(), piece.prompt) for piece in pieces]
    of = f"{size} tokens with a prompt of {prompt}, in pieces of {length}: {seen}"
    assert seen and all(len(tokens) == length for tokens, _ in seen[:-1]), f"{of}: a piece is not full"
    assert len(seen[-1][0]) <= length, f"{of}: the last piece is too long"
    assert [before[0][-1] == after[0][0] for before, after in pairwise(seen)] == [True] * (len(seen) - 1), (
        f"{of}: a piece does not start with the last token of the previous one"
    )
    assert seen[0][0][:1] == list(range(size))[:1], f"{of}: the first piece does not start with the first token"
    assert [token for tokens, _ in seen for token in tokens[1:]] == list(range(1, size)), f"{of}: not each token once"
    given = [token for tokens, prompt in seen for token in tokens[:prompt]]
    assert sorted(set(given)) == list(range(prompt)), f"{of}: the prompts hold {given}"
    assert all(0 <= prompt <= len(tokens) for tokens, prompt in seen), f"{of}: a prompt is longer than its piece"


INVALID = [
    ("a list of tokens", lambda: ([1, 2],), ("tokens of a document", "list")),
    ("tokens that are floats", lambda: (torch.zeros(2),), ("tokens of a document", "float32")),
    ("a batch of tokens", lambda: (torch.zeros(1, 2, dtype=torch.int64),), ("tokens of a document", "[1, 2]")),
    ("a prompt longer than the document", lambda: (torch.arange(2), 3), ("prompt of 3", "document of 2")),
]


def falsify_invalid_documents_are_refused(subject: Any) -> None:
    for what, arguments, words in INVALID:
        oracles.assert_refused(what, lambda of=arguments: subject.Document(*of()), *words)


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
