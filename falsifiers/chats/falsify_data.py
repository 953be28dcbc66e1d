"""Attacks on chats as data: rows of files, documents that are stored, and documents and tokenizers of their own."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.chats.falsify_turns import CHAT, TEMPLATES, TURNS, accepted, expected, requests
from falsifiers.chats.tokenizer import END, Messages, Tokenizer, letters, read_rows, words
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import scratch
from reference_trainer import DataError, Document, SettingError, pack_documents, pad_documents, rows_of_documents


@given(
    rows=st.lists(requests() | words, min_size=1, max_size=4),
    template=TEMPLATES,
    turns=TURNS,
    length=st.integers(2, 12),
    keeps_empty=st.booleans(),
)
@example(rows=[[{"role": "user", "content": "a"}], ""], template=Tokenizer(), turns="every", length=9, keeps_empty=True)
@example(rows=[CHAT * 2, CHAT], template=Tokenizer(strips="assistant"), turns="every", length=12, keeps_empty=False)
def falsify_long_conversations_are_cut(
    subject: Any, rows: list[Messages | str], template: Tokenizer, turns: str, length: int, keeps_empty: bool
) -> None:
    chats = [row if isinstance(row, str) else accepted(row, template) for row in rows]
    text = [*template.begins], [False] * len(template.begins)
    # The documents of each row, as tokens and whether each is predicted.
    wholes = [
        [([*text[0], *letters(row), END], [*text[1], *[True] * (len(row) + 1)])]
        if isinstance(row, str)
        else expected(row, template, {}, turns) or [([], [])]
        for row in chats
    ]
    kept, continues, cut, empty = [], [], 0, 0
    for documents in wholes:
        is_later = False
        for tokens, predicted in documents:
            is_empty = not any(predicted[1:length])
            cut, empty = cut + (len(tokens) > length), empty + is_empty
            if keeps_empty or not is_empty:
                kept.append(([0], [False]) if is_empty else (tokens[:length], predicted[:length]))
                continues.append(is_later)
                is_later = True
    lines = [json.dumps({"text": row} if isinstance(row, str) else {"messages": row}) for row in chats]
    call = partial(read_rows, subject, lines, template, length, keeps_empty=keeps_empty, turns=turns)
    if empty == sum(map(len, wholes)):
        message = refusal(call, DataError)
        assert message, f"no token of {lines} is predicted in {length}, and they are accepted"
        assert ("larger --length" in message) == (cut > 0), f"{cut} documents are cut, and the message is: {message}"
        return
    read = call()
    seen = [(document.tokens.tolist(), [not flag for flag in document.given.tolist()]) for document in read.documents]
    assert_equal("documents", seen, kept)
    assert_equal("which documents continue a conversation", list(map(bool, read.continues)), continues)
    assert_equal("numbers of cut and empty documents", (read.cut, read.empty), (cut, empty))
    assert_equal("the largest token", read.largest, max(max(tokens) for tokens, _ in kept))


def _answer(**keys: Any) -> str:
    return json.dumps({"messages": [{"role": "assistant", **keys}]})


def _asked(**keys: Any) -> str:
    return json.dumps({"messages": [keys, {"role": "assistant", "content": "a"}]})


INVALID = (
    ("[1]", "list"),
    ('{"a": 1}', "its keys are a"),
    ('{"messages": 3, "lost": 1}', "invalid messages"),
    ('{"messages": null}', "its keys are messages (null); expected `messages`, "),
    ('{"messages": [{"content": "a"}]}', "invalid messages"),
    (_asked(role="user"), "message 1 has no content"),
    (_answer(content=None), "message 1 has no content"),
    (_asked(role="stranger", content="a"), "template"),
    (_asked(role="user", content=[{"type": "image", "url": "a"}]), "message 1 has a content with a part"),
    (_asked(role="user", content=["a"]), "with a part of type 'str'; expected text"),
    (_answer(content="a", weight=0.5), "message 1 has the weight 0.5; expected 0 or 1"),
    ('{"messages": [], "tools": {"name": "a"}}', "invalid tools: dict, expected a list"),
    ('{"prompt": "a"}', "its keys are prompt"),
    ('{"text": 3, "n": 1}', "its keys are text (int), n (int); expected `messages`, "),
    ('{"messages": [', "invalid JSON in column 15: Expecting value; expected an object"),
)


@given(valid=st.integers(0, 2), case=st.sampled_from(INVALID))
def falsify_invalid_rows_are_named(subject: Any, valid: int, case: tuple[str, str]) -> None:
    line, message = case
    call = partial(read_rows, subject, ['{"text": "abc"}'] * valid + [line], Tokenizer())
    assert_refused(line, call, f"chats.jsonl:{valid + 1}: ", message, kind=DataError)
    with scratch() as folder:
        path = folder / "missing.jsonl"
        call = partial(subject.write_chats, path, subject.ChatWriter(Tokenizer()), 99, folder)
        assert_refused("a missing file", call, str(path), kind=DataError)


LENGTH = 6
ROWS: dict[str, Any] = {"length": LENGTH, "device": torch.device("cpu")}


@st.composite
def documents(draw: st.DrawFn) -> Document:
    tokens = draw(st.lists(st.sampled_from([0, 1, 2**31 - 1, 151_935]), min_size=1, max_size=LENGTH))
    mask = draw(st.none() | st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    prompt = draw(st.integers(0, len(tokens)))
    return Document(torch.tensor(tokens), prompt=prompt, given=None if mask is None else torch.tensor(mask))


TENS = [Document(torch.tensor([10 * number] * (1 + number % 5))) for number in range(9)]
SLICES = st.builds(
    slice, st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6), st.sampled_from([None, 1, 2, 3, -1])
)


@given(
    written=st.lists(documents(), max_size=9),
    pack=st.booleans(),
    joined=st.booleans(),
    parts=st.lists(SLICES, max_size=2),
    first=st.integers(0, 3),
)
@example(written=TENS, pack=False, joined=False, parts=[slice(1, None), slice(1, None, 2)], first=0)
@example(written=TENS, pack=True, joined=True, parts=[slice(1, None, 3), slice(1, None)], first=2)
def falsify_stored_documents_make_the_same_rows(
    subject: Any, written: list[Document], pack: bool, joined: bool, parts: list[slice], first: int
) -> None:
    """In any order, of any part of the data; rows and their lengths are known without a read of tokens."""
    with scratch() as folder:
        subject.write_documents(folder, written)
        read = subject.StoredDocuments(folder)
        if joined:
            read = subject.ChainedDocuments([read[:2], read[2:2], read[2:]])
        in_memory = written
        for part in parts:
            in_memory, read = in_memory[part], read[part]
        tokens = folder / subject.TOKENS
        content = tokens.read_bytes()
        tokens.write_bytes(b"")
        rows = subject.rows_of_documents(read, pack=pack, batch_size=len(in_memory) or 1, first=first, **ROWS)
        if not in_memory:
            assert_equal("rows of no document", len(rows), 0)
            return
        lengths = rows.length_groups().lengths.tolist()
        tokens.write_bytes(content)
        order = torch.arange(len(rows)).flip(0)
        batch = rows.batch(order, 1)
        packed = pack_documents(in_memory, length=LENGTH, padding_id=0)
        expected = packed if pack else pad_documents(in_memory, padding_id=0)
        assert_equal("tokens", batch.tokens.tolist(), expected.tokens.flip(0).tolist())
        assert_equal("labels", batch.labels.tolist(), expected.labels.flip(0).tolist())
        assert_equal("numbers of examples", batch.examples.tolist(), (order + first).tolist())
        sizes = (packed.segments > 0).sum(1).tolist() if pack else [len(document.tokens) for document in in_memory]
        assert_equal("lengths of rows", lengths, sizes)


def _peak(subject: Any, folder: Path, rows: int) -> int:
    """Return the peak of the memory of Python while this many rows are written and made into batches."""
    (folder / "chats.jsonl").write_text((json.dumps({"prompt": "abc", "completion": "abc"}) + "\n") * rows)
    tracemalloc.start()
    subject.write_chats(folder / "chats.jsonl", subject.ChatWriter(Tokenizer()), 99, folder)
    rows_of_documents(subject.read_chats(folder).documents, pack=False, batch_size=2, **ROWS | {"length": 99})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@given(more=st.integers(400, 800))
def falsify_memory_does_not_grow_with_the_data(subject: Any, more: int) -> None:
    with scratch() as folder:
        _peak(subject, folder, 2)  # what is imported or cached by the first call
        few, many = (_peak(subject, folder, rows) for rows in (20, more))
    # 64 KiB are less than the documents of a hundred rows take.
    assert many - few < 64 * 1024, f"{more} rows take {many - few} bytes more than 20"


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=3))
def falsify_positions_of_segments(subject: Any, rows: list[list[int]]) -> None:
    for row, positions in zip(rows, subject.positions_of(torch.tensor(rows)).tolist(), strict=True):
        expected: list[int] = []
        for at, segment in enumerate(row):
            expected.append(expected[-1] + 1 if at and segment == row[at - 1] else 0)
        assert_equal(f"positions of the segments {row}", positions, expected)


@dataclass(frozen=True)
class CountingTokenizer(Tokenizer):
    """calls: has an item for each call of `get_vocab`, which takes 71 ms for 49,152 tokens."""

    calls: list[None] = field(default_factory=list)

    def get_vocab(self) -> dict[str, int]:
        self.calls.append(None)
        return super().get_vocab()


VOCABULARIES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), min_size=1)


@given(student=VOCABULARIES, change=st.sampled_from(["none", "more", "missing", "moved"]))
def falsify_other_tokenizers_are_refused(subject: Any, student: dict[str, int], change: str) -> None:
    token = min(student, key=lambda name: student[name])
    teachers = {
        "none": student,
        "more": {**student, "z": 10},
        "missing": {name: number for name, number in student.items() if name != token},
        "moved": {**student, token: 11},
    }
    both = CountingTokenizer(vocabulary=student), CountingTokenizer(vocabulary=teachers[change])
    message = refusal(lambda: subject.check_tokens(*both), SettingError)
    assert bool(message) == (change in ("missing", "moved")), f"{token!r} is {change}: {message or 'accepted'}"
    numbers = [str(student[token])] + ["11"] * (change == "moved")
    assert not message or all(word in message for word in (repr(token), *numbers)), (
        f"{message!r} lacks one of {numbers}"
    )
    assert_equal("readings of each vocabulary", [len(tokenizer.calls) for tokenizer in both], [1, 1])
