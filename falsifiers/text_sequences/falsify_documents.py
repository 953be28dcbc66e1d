"""Attacks on the documents of a text. The subject is `reference_trainer.data.documents`.

The oracle splits the text with Python's `bytes.split`, and lists each byte to predict with the bytes before it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.fake_cuda import CUDA, fake_cuda
from falsifiers.support.oracles import assert_refused
from falsifiers.support.texts import epoch
from reference_trainer.data.text import epoch_order

IGNORED = -100
TEXTS = st.text(alphabet="ab|", min_size=1, max_size=60)
SEPARATORS = st.sampled_from(["|", "||", "a|", "é"])


class _Text:
    """The functions that `support.texts.epoch` needs."""

    epoch_order = staticmethod(epoch_order)


def _bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _documents(text: str, separator: str) -> list[bytes]:
    """Return the documents: each ends with its separator, the last one may have none."""
    *complete, rest = text.encode().split(separator.encode())
    return [each for each in (*(part + separator.encode() for part in complete), rest) if each]


def _predicted(text: str, separator: str, length: int) -> Counter[tuple[bytes, int]]:
    """Return each byte that is predicted, with the bytes before it in its piece."""
    found: Counter[tuple[bytes, int]] = Counter()
    for document in _documents(text, separator):
        for place in range(1, len(document)):
            first = (place - 1) // (length - 1) * (length - 1)
            found[document[first:place], document[place]] += 1
    return found


def _seen(batch: Any) -> Counter[tuple[bytes, int]]:
    """Return each label of a batch, with the tokens that its model sees before it."""
    found: Counter[tuple[bytes, int]] = Counter()
    segments = torch.ones_like(batch.tokens) if batch.segments is None else batch.segments
    for tokens, labels, own in zip(batch.tokens.tolist(), batch.labels.tolist(), segments.tolist(), strict=True):
        for place, label in enumerate(labels):
            if label != IGNORED and place:
                visible = [token for token, mine in zip(tokens[:place], own, strict=False) if mine == own[place - 1]]
                found[bytes(visible), label] += 1
    return found


@given(text=TEXTS, separator=SEPARATORS)
def falsify_documents_hold_every_byte_once(subject: Any, text: str, separator: str) -> None:
    seen = [bytes(each.tokens.tolist()) for each in subject.documents_of(_bytes(text), separator)]
    expected = _documents(text, separator)
    assert seen == expected, f"the documents of {text!r} with {separator!r} are {seen}; expected {expected}"


@given(
    text=TEXTS,
    separator=SEPARATORS,
    pack=st.booleans(),
    length=st.integers(2, 9),
    batch_size=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def falsify_each_byte_is_predicted_once_from_its_document(
    subject: Any, device: str, text: str, separator: str, pack: bool, length: int, batch_size: int, seed: int
) -> None:
    expected = _predicted(text, separator, length)
    assume(expected)
    made = {"pack": pack, "length": length, "batch_size": batch_size, "device": torch.device(device)}
    rows = subject.document_rows(_bytes(text), separator, **made)
    batches = epoch(_Text, rows, seed)
    seen = sum((_seen(batch) for batch in batches), Counter[tuple[bytes, int]]())
    lacks, more = expected - seen, seen - expected
    assert not lacks and not more, (
        f"{text!r} with {separator!r} in rows of {length}, packed {pack}: missing {dict(lacks)}, too many {dict(more)}"
    )
    widths = {batch.tokens.shape[1] for batch in batches}
    assert max(widths) <= length and (not pack or widths == {length}), f"rows of {length} have the widths {widths}"
    assert all((batch.segments is None) == (not pack) for batch in batches), "segments are for packed rows alone"
    sizes = [len(batch.tokens) for batch in batches]
    assert len(sizes) == rows.batches == -(-len(rows) // batch_size) and sum(sizes) == len(rows), f"batches of {sizes}"


@given(text=TEXTS, pack=st.booleans())
def falsify_batches_are_on_the_device_of_the_run(subject: Any, text: str, pack: bool) -> None:
    assume(_predicted(text, "|", 6))
    with fake_cuda():
        rows = subject.document_rows(_bytes(text), "|", pack=pack, length=6, batch_size=2, device=CUDA)
        batch = rows.batch(torch.arange(len(rows)), 1)
        parts = [batch.tokens, batch.labels, *([] if batch.segments is None else [batch.segments])]
        assert {each.device.type for each in parts} == {"cuda"}, f"packed {pack}: {[each.device for each in parts]}"


@given(text=st.text(alphabet="|", max_size=9), pack=st.booleans())
def falsify_a_text_without_documents_is_refused(subject: Any, text: str, pack: bool) -> None:
    made = {"pack": pack, "length": 6, "batch_size": 2, "device": torch.device("cpu")}
    assert_refused(repr(text), lambda: subject.document_rows(_bytes(text), "|", **made), "separator", "'|'")
