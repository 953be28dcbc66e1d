"""Attacks on files of chats: forms of rows, lengths, and what is refused."""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.chats.tokenizer import END, Tokenizer, answered, conversations, letters, tokenizers, words
from falsifiers.support.oracles import assert_refused
from reference_trainer.errors import DataError

Messages = list[dict[str, str]]
INVALID = (
    ("[1]", "list"),
    ('{"a": 1}', "its keys are a"),
    ('{"messages": 3}', "invalid messages"),
    ('{"messages": null}', "its keys are messages (null); expected `messages`, "),
    ('{"messages": [{"content": "a"}]}', "invalid messages"),
    ('{"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]}', "message 1 has no content"),
    ('{"messages": [{"role": "assistant", "content": null}]}', "message 1 has no content"),
    ('{"messages": [{"role": "stranger", "content": "a"}, {"role": "assistant", "content": "a"}]}', "template"),
    (
        '{"messages": [{"role": "user", "content": [{"type": "image", "url": "a"}]}]}',
        "message 1 has a content with a part",
    ),
    ('{"messages": [{"role": "user", "content": ["a"]}]}', "with a part of type 'str'; expected text"),
    (
        '{"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]}',
        "message 1 has the weight 0.5; expected 0 or 1",
    ),
    ('{"messages": [], "tools": {"name": "a"}}', "invalid tools: dict, expected a list"),
    ('{"prompt": "a"}', "its keys are prompt"),
    ('{"text": 3, "n": 1}', "its keys are text (int), n (int); expected `messages`, "),
    ('{"messages": [', "invalid JSON in column 15: Expecting value; expected an object"),
)


def _read(subject: Any, lines: list[str], tokenizer: Tokenizer, length: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chats.jsonl")
        path.write_text("\n".join(lines) + "\n")
        subject.write_chats(path, subject.ChatWriter(tokenizer), length, Path(folder))
        return subject.read_chats(Path(folder))


@given(prompt=words, completion=st.text("abc", min_size=1, max_size=4), tokenizer=tokenizers)
def falsify_prompts_and_texts(subject: Any, prompt: str, completion: str, tokenizer: Tokenizer) -> None:
    rows = [{"prompt": prompt, "completion": completion}, {"text": prompt + completion}]
    pair, text = _read(subject, [json.dumps(row) for row in rows], tokenizer, 99).documents
    begins = [*tokenizer.begins]
    before, after = [*begins, *letters(prompt)], [*letters(completion), END]
    assert pair.tokens.tolist() == [*before, *after] == text.tokens.tolist(), (pair.tokens, text.tokens)
    assert pair.given.tolist() == [True] * len(before) + [False] * len(after), f"given: {pair.given.tolist()}"
    assert not text.given[len(begins) :].any(), f"given in a text: {text.given.tolist()}"


@given(chats=st.lists(conversations(), min_size=1, max_size=4), length=st.integers(2, 12))
def falsify_long_conversations_are_cut(subject: Any, chats: list[Messages], length: int) -> None:
    whole = [answered(messages) for messages in chats]
    kept = [each[:length] for each in whole if any(own for _, own in each[1:length])]
    lines = [json.dumps({"messages": messages}) for messages in chats]
    try:
        read = _read(subject, lines, Tokenizer(), length)
    except DataError:
        assert not kept, f"refused, and {len(kept)} conversations have an answer"
        return
    found = [each.tokens.tolist() for each in read.documents]
    wanted = [[token for token, _ in each] for each in kept]
    assert found == wanted, f"{found} are read, not {wanted}"
    numbers = (sum(len(each) > length for each in whole), len(whole) - len(kept))
    assert (read.cut, read.empty) == numbers, f"{(read.cut, read.empty)} are counted as cut and empty, not {numbers}"


@given(valid=st.integers(0, 2), case=st.sampled_from(INVALID))
def falsify_invalid_rows_are_named(subject: Any, valid: int, case: tuple[str, str]) -> None:
    line, said = case
    read = partial(_read, subject, ['{"text": "abc"}'] * valid + [line], Tokenizer(), 99)
    assert_refused(line, read, f"chats.jsonl:{valid + 1}: ", said, kind=DataError)
