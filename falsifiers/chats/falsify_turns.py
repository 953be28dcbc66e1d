"""Attacks on the tokens of a conversation that are predicted, and on fields of the data that change no token."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.chats.tokenizer import END, Messages, Tokenizer, conversations, letters, read_rows
from falsifiers.support.assertions import assert_equal, refusal
from reference_trainer.errors import DataError

Document = tuple[list[int], list[bool]]
"""Tokens, each with whether it is predicted."""
VARIANTS: list[dict[str, Any]] = [
    {},
    {"strips": "assistant"},  # earlier answers are written otherwise
    {"prompt": "A<"},  # it begins a thought
    {"prompt": "A<>"},  # it has an empty one
    {"last": "^"},  # a conversation has an end of its own
    {"ends": False},  # only the mark of the next message ends an answer
    {"ends": False, "prompt": "A<"},
    {"ends": False, "last": "^"},
]
TEMPLATES = st.builds(
    lambda variant, **options: Tokenizer(**options, **variant),
    st.sampled_from(VARIANTS),
    begins=st.sampled_from([(), (2,)]),
    is_marked=st.booleans(),
    thinks=st.booleans(),
    system=st.sampled_from(["", "ab"]),
    trims=st.booleans(),
)
CHAT: Messages = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "a"}]
CALL = {"id": "c", "function": {"name": "b", "arguments": {"a": "ab"}}}
_CALLING: Messages = [CHAT[0], CHAT[1] | {"tool_calls": [CALL]}]
_UNWEIGHTED: Messages = [CHAT[0], CHAT[1] | {"weight": 0}, *CHAT]
TURNS = st.sampled_from(["every", "last"])
OPTIONS = st.sampled_from([{}, {"calm": True}])


@st.composite
def requests(draw: st.DrawFn) -> Messages:
    """Draw a conversation with thoughts and weights; it begins with a question, or an answer without thoughts."""
    messages: Messages = [dict(message) for message in draw(conversations())]
    for message in messages:
        message["content"] = draw(st.sampled_from(["", " "])) + message["content"]
        if message["role"] == "assistant":
            message |= draw(
                st.sampled_from([{}, {"reasoning_content": "c"}, {"weight": 0}, {"weight": 1}, {"tool_calls": [CALL]}])
            )
    return messages if messages[0]["role"] != "assistant" else [{"role": "user", "content": "b"}, *messages]


def accepted(messages: Messages, template: Tokenizer) -> Messages:
    """Return messages without those that the template gives no request: answers that follow each other."""
    is_first = [n == 0 or messages[n - 1]["role"] != message["role"] for n, message in enumerate(messages)]
    return [message for message, first in zip(messages, is_first, strict=True) if first or not template.strips]


def _answers(messages: Messages) -> list[int]:
    return [n for n, message in enumerate(messages) if message["role"] == "assistant"]


def _until_answer(messages: Messages, template: Tokenizer, options: dict[str, Any]) -> Document:
    """Return the tokens up to an answer, the last message, each with whether it is predicted."""
    pieces = list(template.spans(messages, **options))
    # The answer is what follows the mark of its role, the last piece that no answer has.
    first = max(n for n, (_, is_answer) in enumerate(pieces) if not is_answer) + 1
    before, answer = ("".join(text for text, _ in part) for part in (pieces[:first], pieces[first:]))
    answer += template.last
    # What the prompt for an answer has of it is not predicted, unless the template marks answers itself.
    pairs = zip(template.prompt[1:], answer, strict=False)
    prompted = 0 if template.is_marked else len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    tokens = [*template.begins, *letters(before), *letters(answer)]
    predicted = messages[-1].get("weight", 1) != 0
    return tokens, [predicted and at >= len(tokens) - len(answer) + prompted for at in range(len(tokens))]


def expected(messages: Messages, template: Tokenizer, options: dict[str, Any], turns: str) -> list[Document]:
    """Return the documents of a conversation: an answer extends the last one if its request begins with that."""
    answers = _answers(messages)
    is_open = not (template.ends or template.last or template.is_marked)  # only the next message ends an answer
    documents: list[Document] = []
    last, ends = 0, list[bool]()  # whether the next message would end a document, unless it follows a call
    for n in answers[-1:] if turns == "last" else answers:
        tokens, predicted = _until_answer(messages[: n + 1], template, options)
        before = documents[-1] if documents else ([], [])
        # The conversation continues: its earlier answers stay predicted, and so does the token that ended the last one.
        if documents and tokens[: len(before[0])] == before[0]:
            predicted[: len(before[1])] = before[1]
            predicted[len(before[1])] = is_open and before[1][-1] and messages[last + 1]["role"] != "assistant"
            documents.pop()
            ends.pop()
        documents.append((tokens, predicted))
        ends.append(is_open and predicted[-1] and "tool_calls" not in messages[n])
        last = n
    pairs = zip(documents, ends, strict=True)
    return [
        ([*tokens, *letters("U")], [*predicted, True]) if end else (tokens, predicted)
        for (tokens, predicted), end in pairs
    ]


@given(messages=requests(), template=TEMPLATES, options=OPTIONS, turns=TURNS)
@example(messages=_UNWEIGHTED, template=Tokenizer(ends=False), options={}, turns="every")
@example(messages=_CALLING, template=Tokenizer(ends=False), options={}, turns="every")
def falsify_answers_are_predicted(
    subject: Any, messages: Messages, template: Tokenizer, options: dict[str, Any], turns: str
) -> None:
    messages = accepted(messages, template)
    writer = subject.ChatWriter(template, turns=turns, options=options)
    seen = [(d.tokens.tolist(), [not flag for flag in d.given.tolist()]) for d in subject.encode_chat(messages, writer)]
    documents = expected(messages, template, options, turns)
    assert_equal("the tokens", [tokens for tokens, _ in seen], [tokens for tokens, _ in documents])
    assert_equal("the tokens with whether they are predicted", seen, documents)
    marks = {token for tokens, predicted in seen for token, p in zip(tokens, predicted, strict=True) if p} & set(
        letters("SUAT")
    )
    whole = [{**message, "weight": 1} for message in messages]
    answers = [_until_answer(whole[: n + 1], template, options)[1] for n in _answers(messages)]
    facts = {
        "are divided": len(documents) > 1,
        "with which the next message begins": bool(marks),
        "have no token that the chat template marks": template.is_marked
        and not all(map(any, answers[-1:] if turns == "last" else answers)),
    }
    for words, is_true in facts.items():
        is_named = any(words in note for note in writer.notes())
        assert is_named == is_true, f"{words!r} is {is_true} of {documents}, and the notes are {writer.notes()}"


@given(content=st.text("abc", max_size=4), template=TEMPLATES)
def falsify_a_first_answer_has_no_prompt(subject: Any, content: str, template: Tokenizer) -> None:
    """Nothing before its content is predicted, such as the system text of a template."""
    writer = subject.ChatWriter(template, options={"calm": True})
    (document,) = subject.encode_chat([{"role": "assistant", "content": content}], writer)
    before = len([*template.begins, *letters(("Sab." if template.system else "") + "A")])
    expected_mask = [at < before for at in range(len(document.tokens))]
    assert_equal("tokens that are not predicted", document.given.tolist(), expected_mask)


@given(messages=requests(), template=TEMPLATES, prompt=st.sampled_from(["T", "TA", "Uab"]))
def falsify_answers_without_their_prompt_are_refused(
    subject: Any, messages: Messages, template: Tokenizer, prompt: str
) -> None:
    """Unless the template marks answers."""
    writer = subject.ChatWriter(replace(template, prompt=prompt, last=""))
    message = refusal(lambda: subject.encode_chat(messages, writer), DataError)
    refused = "does not begin message" in message
    assert refused != template.is_marked and refused == bool(message), f"prompt {prompt!r}: {message or 'accepted'}"


@given(messages=requests())
def falsify_rewritten_questions_are_refused(subject: Any, messages: Messages) -> None:
    """Where the question before an answer loses its content, an answer has another context than its request."""
    lost = [n for n in _answers(messages) if messages[n - 1]["role"] == "user" and messages[n - 1]["content"]]
    writer = subject.ChatWriter(Tokenizer(strips="user"))
    message = refusal(lambda: subject.encode_chat(messages, writer), DataError)
    words = f"message {lost[0] + 1}, an answer" if lost else ""
    assert bool(message) == bool(lost) and words in message, f"{message or 'accepted'}; lost before messages {lost}"


ROW: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "aa", "weight": 1},
        {"role": "user", "content": [{"type": "text", "text": "ab", "cached": True}], "name": "c"},
        {"role": "assistant", "content": "ba", "reasoning_content": "cc", "tool_calls": [CALL], "weight": 1},
        {"role": "tool", "content": "bb", "name": "b", "tool_call_id": "c"},
        {"role": "assistant", "content": "ca", "reasoning_content": "ac"},
        {"role": "user", "content": "bc"},
        {"role": "assistant", "content": "cb", "reasoning_content": "bbc"},
        {"role": "user", "content": "abc"},
    ],
    "tools": [{"name": "b", "strict": True}],
    "source": {"page": 3},
    "text": "abc",
    "score": 0,
}
Keys = tuple[str | int, ...]
READING = st.builds(
    Tokenizer,
    strips=st.sampled_from(["", "assistant"]),
    is_marked=st.booleans(),
    thinks=st.booleans(),
    reads=st.lists(st.sampled_from(["tool_calls", "name", "tool_call_id"]), unique=True).map(tuple),
    reads_tools=st.booleans(),
    skips=st.sampled_from(["", "system", "tool"]),
    drops=st.sampled_from(["", "c"]),
)


def _leaves(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in ("role", "type"):
                yield from _leaves(part, (*keys, key))
    else:
        yield keys


AMBIGUOUS = ("weight", "name", "reasoning_content")
"""Keys that one message may have with effect and another without."""


def _written(
    subject: Any, row: dict[str, Any], template: Tokenizer, turns: str = "every"
) -> tuple[list[Any], list[str]]:
    """Return tokens and masks of the documents of a row, and the notes."""
    chats = read_rows(subject, [json.dumps(row)], template, turns=turns)
    return [(document.tokens.tolist(), document.given.tolist()) for document in chats.documents], list(chats.notes)


def _with(row: dict[str, Any], keys: Keys, value: object = None) -> dict[str, Any]:
    """Return a row with another value, or a changed one, in a place."""
    changed = copy.deepcopy(row)
    place: Any = changed
    for key in keys[:-1]:
        place = place[key]
    before = place[keys[-1]]
    place[keys[-1]] = value or (before + "b" if isinstance(before, str) else 1 - before)
    return changed


@given(path=st.sampled_from(list(_leaves(ROW))), template=READING, turns=TURNS)
def falsify_fields_change_a_token_or_are_named(subject: Any, path: Keys, template: Tokenizer, turns: str) -> None:
    before, notes = _written(subject, ROW, template, turns)
    after, _ = _written(subject, _with(ROW, path), template, turns)
    keys = [key for key in path if isinstance(key, str)]
    name = ".".join(keys[1:] if keys[0] == "messages" else keys)
    if name == "weight":
        words = "have a weight that has no effect"
    elif path[:2] == ("messages", len(ROW["messages"]) - 1):
        words = "after the last answer are left out"
    elif name == "content":
        words = f"of role {ROW['messages'][path[1]]['role']!r} have a content"
    elif name.startswith("content."):
        words = "of contents have 'cached'" if name.endswith("cached") else "of role 'user' have a content"
    else:  # the note may name a key that the field is in
        names = [repr(".".join(name.split(".")[:depth])) for depth in range(1, 5)]
        words = next((outer for outer in names if any(outer in note for note in notes)), repr(name))
    is_lost = any("are not written whole" in note for note in notes)
    assert is_lost == bool(template.drops), f"answers lose what precedes {template.drops!r}, and the notes are {notes}"
    is_named = any(words in note for note in notes)
    if before == after:
        assert is_named, f"a change of {path} changes no token, and the notes do not say {words}: {notes}"
    elif name.split(".")[-1] not in AMBIGUOUS and not (name == "content" and template.strips):
        assert not is_named, f"a change of {path} changes tokens, and a note says {words}: {notes}"


@given(template=READING, turns=TURNS, copies=st.integers(2, 40))
@example(template=Tokenizer(reads=("name",)), turns="every", copies=260)
def falsify_notes_count_every_row(subject: Any, template: Tokenizer, turns: str, copies: int) -> None:
    """However many of them were tried before, and in whatever block."""
    row = json.dumps(ROW | {"messages": [*ROW["messages"], CHAT[0]]})
    chats = (read_rows(subject, [row] * count, template, turns=turns) for count in (1, copies))
    one, many = ({tuple(re.split(r" \((\d+)\)$", note)) for note in read.notes} for read in chats)
    expected = {(words, str(copies * int(count)), rest) for words, count, rest in one}
    assert_equal(f"notes about {copies} equal rows", many, expected)
    after = ("messages after the last answer are left out", str(2 * copies), "")
    assert after in many, f"of {copies} rows with two questions after the last answer, the notes are {many}"


@given(eos=st.sampled_from([None, END]), row=st.sampled_from([{"text": "ab"}, {"prompt": "a", "completion": "b"}]))
def falsify_texts_without_an_end_are_named(subject: Any, eos: int | None, row: dict[str, str]) -> None:
    [(tokens, _)], notes = _written(subject, row, Tokenizer(eos_token_id=eos))
    is_named = any("end without an end-of-sequence token" in note for note in notes)
    assert is_named == (eos is None) == (tokens[-1] != END), f"with the end {eos}: {tokens}, {notes}"


@given(named=st.booleans())
def falsify_options_that_no_template_reads_are_named(subject: Any, named: bool) -> None:
    writer = subject.ChatWriter(Tokenizer(), options={"calm" if named else "calmer": True})
    assert bool(writer.notes()) != named, f"notes: {writer.notes()}"


@given(template=READING, as_text=st.booleans())
def falsify_tools_and_parts_in_other_forms_are_equal(subject: Any, template: Tokenizer, as_text: bool) -> None:
    """Definitions of tools may be JSON text; a content in parts is its text."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    other = ROW | {"tools": json.dumps(ROW["tools"]) if as_text else ROW["tools"]}
    other["messages"] = [*ROW["messages"][:1], {**ROW["messages"][1], "content": parts}, *ROW["messages"][2:]]
    one, two = (_written(subject, row, template)[0] for row in (ROW, other))
    assert_equal("documents of the other form", two, one)
    assert_equal("the first document begins with the tools", one[0][0][:2] == letters("Tb"), template.reads_tools)
    function = CALL["function"] | {"arguments": json.dumps(CALL["function"]["arguments"])}
    notes = _written(subject, _with(ROW, ("messages", 2, "tool_calls", 0, "function"), function), template)[1]
    is_named = any("whose arguments are JSON text" in note for note in notes)
    assert_equal(f"arguments are quoted, and a note says so of {notes}", is_named, "tool_calls" in template.reads)
