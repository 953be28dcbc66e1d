"""Attacks on which tokens of a conversation are predicted, and on notes about fields that change no token.

Notes are the warnings of a `ChatWriter` about its data.
"""

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
    {"strips": "assistant"},  # the content of earlier answers is left out
    {"prompt": "A<"},  # the prompt for an answer begins a thought
    {"prompt": "A<>"},  # the prompt for an answer has an empty thought
    {"last": "^"},  # a mark ends the conversation
    {"ends": False},  # an answer ends where the mark of the next message begins
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
    """Return messages without answers that follow an answer, if the template strips answers: none requests them."""
    is_first = [n == 0 or messages[n - 1]["role"] != message["role"] for n, message in enumerate(messages)]
    return [message for message, first in zip(messages, is_first, strict=True) if first or not template.strips]


def _answer_indices(messages: Messages) -> list[int]:
    return [n for n, message in enumerate(messages) if message["role"] == "assistant"]


def _until_answer(messages: Messages, template: Tokenizer, options: dict[str, Any]) -> Document:
    """Return the tokens of messages that end with an answer, and whether each token is predicted."""
    pieces = list(template.spans(messages, **options))
    # The answer begins after the last piece that belongs to no answer: the mark of its role.
    first = max(n for n, (_, is_answer) in enumerate(pieces) if not is_answer) + 1
    before, answer = ("".join(text for text, _ in part) for part in (pieces[:first], pieces[first:]))
    answer += template.last
    # Characters of the answer that the prompt already has are not predicted, unless the template marks answers.
    pairs = zip(template.prompt[1:], answer, strict=False)
    prompted = 0 if template.is_marked else len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    tokens = [*template.begins, *letters(before), *letters(answer)]
    predicted = messages[-1].get("weight", 1) != 0
    return tokens, [predicted and at >= len(tokens) - len(answer) + prompted for at in range(len(tokens))]


def expected(messages: Messages, template: Tokenizer, options: dict[str, Any], turns: str) -> list[Document]:
    """Return the documents of a conversation.

    An answer extends the previous document if its own tokens begin with the tokens of that document. Otherwise, it
    begins a new document.
    """
    answers = _answer_indices(messages)
    is_open = not (template.ends or template.last or template.is_marked)  # only the next message ends an answer
    documents: list[Document] = []
    last, ends = 0, list[bool]()  # whether the next message would end a document, unless it follows a call
    for n in answers[-1:] if turns == "last" else answers:
        tokens, predicted = _until_answer(messages[: n + 1], template, options)
        before = documents[-1] if documents else ([], [])
        # The document continues: its earlier answers stay predicted, and the token that ends the last one is too.
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
    """Compare the documents with the spans of the template, and the notes with facts about the documents."""
    messages = accepted(messages, template)
    writer = subject.ChatWriter(template, turns=turns, options=options)
    chat = subject.encode_chat(messages, writer)
    actual = [(d.tokens.tolist(), [not is_given for is_given in d.given.tolist()]) for d in chat]
    documents = expected(messages, template, options, turns)
    assert_equal("the tokens", [tokens for tokens, _ in actual], [tokens for tokens, _ in documents])
    assert_equal("(tokens, whether each is predicted) of the documents", actual, documents)
    predicted_tokens = {t for tokens, predicted in actual for t, p in zip(tokens, predicted, strict=True) if p}
    whole = [{**message, "weight": 1} for message in messages]
    answers = [_until_answer(whole[: n + 1], template, options)[1] for n in _answer_indices(messages)]
    facts = {
        "are divided": len(documents) > 1,
        "with which the next message begins": bool(predicted_tokens & {*letters("SUAT")}),  # marks of roles
        "have no token that the chat template marks": template.is_marked
        and not all(map(any, answers[-1:] if turns == "last" else answers)),
    }
    for words, is_true in facts.items():
        case = f"notes on {documents} are {writer.notes()}: whether one contains {words!r}"
        assert_equal(case, any(words in note for note in writer.notes()), is_true)


@given(content=st.text("abc", max_size=4), template=TEMPLATES)
def falsify_a_first_answer_has_no_prompt(subject: Any, content: str, template: Tokenizer) -> None:
    """Encode a conversation of one answer: the system text of the template and the mark of the role are given."""
    writer = subject.ChatWriter(template, options={"calm": True})
    (document,) = subject.encode_chat([{"role": "assistant", "content": content}], writer)
    before = len([*template.begins, *letters(("Sab." if template.system else "") + "A")])
    expected = [at < before for at in range(len(document.tokens))]
    assert_equal("whether each token is given", document.given.tolist(), expected)


@given(messages=requests(), template=TEMPLATES, prompt=st.sampled_from(["T", "TA", "Uab"]))
def falsify_answers_without_their_prompt_are_refused(
    subject: Any, messages: Messages, template: Tokenizer, prompt: str
) -> None:
    """Use a prompt with which no answer begins; a template that marks answers needs no prompt."""
    writer = subject.ChatWriter(replace(template, prompt=prompt, last=""))
    message = refusal(lambda: subject.encode_chat(messages, writer), DataError)
    is_expected = message == "" if template.is_marked else "does not begin message" in message
    assert is_expected, f"{prompt=}, {template.is_marked=}: the error is {message!r}; expected one unless marked"


@given(messages=requests())
def falsify_rewritten_questions_are_refused(subject: Any, messages: Messages) -> None:
    """Use a template that leaves out the content of questions before the last one.

    An answer whose question has a content then has another context than its request, and is refused.
    """
    lost = [n for n in _answer_indices(messages) if messages[n - 1]["role"] == "user" and messages[n - 1]["content"]]
    writer = subject.ChatWriter(Tokenizer(strips="user"))
    message = refusal(lambda: subject.encode_chat(messages, writer), DataError)
    words = f"message {lost[0] + 1}, an answer" if lost else ""
    case = f"questions before the messages {lost} lose their content: the error is {message!r}"
    assert bool(message) == bool(lost) and words in message, f"{case}; expected {words!r}"


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
    """Yield the path of each value of a JSON tree, except values of `role` and `type`."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in ("role", "type"):
                yield from _leaves(part, (*keys, key))
    else:
        yield keys


AMBIGUOUS = ("weight", "name", "reasoning_content")
"""Keys that may have an effect in one message and none in another of the same row."""


def _write_row(
    subject: Any, row: dict[str, Any], template: Tokenizer, turns: str = "every"
) -> tuple[list[Any], list[str]]:
    """Write a row and read it back; return (tokens, given) of its documents, and the notes."""
    chats = read_rows(subject, [json.dumps(row)], template, turns=turns)
    return [(document.tokens.tolist(), document.given.tolist()) for document in chats.documents], list(chats.notes)


def _with(row: dict[str, Any], keys: Keys, value: object = None) -> dict[str, Any]:
    """Return a copy of a row with a new value at a path: `value`, or a change of the value there."""
    changed = copy.deepcopy(row)
    place: Any = changed
    for key in keys[:-1]:
        place = place[key]
    before = place[keys[-1]]
    place[keys[-1]] = value or (before + "b" if isinstance(before, str) else 1 - before)
    return changed


@given(first=st.integers(0, 4), template=READING, turns=TURNS)
def falsify_fields_change_a_token_or_are_named(subject: Any, first: int, template: Tokenizer, turns: str) -> None:
    """Change fields of a row: tokens or masks change if and only if no note names the field.

    first: the first changed field; the others are every fifth field after it.
    """
    before, notes = _write_row(subject, ROW, template, turns)
    is_lost = any("are not written whole" in note for note in notes)
    assert_equal(f"{template.drops=}: whether a note of {notes} says so", is_lost, bool(template.drops))
    for path in list(_leaves(ROW))[first::5]:
        after, _ = _write_row(subject, _with(ROW, path), template, turns)
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
        else:  # the note may name an outer key
            names = [repr(".".join(name.split(".")[:depth])) for depth in range(1, 5)]
            words = next((outer for outer in names if any(outer in note for note in notes)), repr(name))
        is_named = any(words in note for note in notes)
        if before == after:
            assert is_named, f"a change of {path} changes no token; the notes are {notes}, expected {words!r} in one"
        elif name.split(".")[-1] not in AMBIGUOUS and not (name == "content" and template.strips):
            assert not is_named, f"a change of {path} changes tokens; notes are {notes}, expected {words!r} in none"


@given(template=READING, turns=TURNS, copies=st.integers(2, 40))
@example(template=Tokenizer(reads=("name",)), turns="every", copies=260)
def falsify_notes_count_every_row(subject: Any, template: Tokenizer, turns: str, copies: int) -> None:
    """Write equal rows: each note must have the number of one row times the number of rows."""
    row = json.dumps(ROW | {"messages": [*ROW["messages"], CHAT[0]]})
    chats = (read_rows(subject, [row] * count, template, turns=turns) for count in (1, copies))
    # The pattern splits a note into its words, its number and the empty text after it.
    one, many = ({tuple(re.split(r" \((\d+)\)$", note)) for note in read.notes} for read in chats)
    expected = {(words, str(copies * int(count)), end) for words, count, end in one}
    assert_equal(f"notes about {copies} equal rows", many, expected)
    expected_note = ("messages after the last answer are left out", str(2 * copies), "")
    assert expected_note in many, f"the notes on {copies} equal rows are {many}; expected {expected_note} among them"


@given(eos=st.sampled_from([None, END]), row=st.sampled_from([{"text": "ab"}, {"prompt": "a", "completion": "b"}]))
def falsify_texts_without_an_end_are_named(subject: Any, eos: int | None, row: dict[str, str]) -> None:
    [(tokens, _)], notes = _write_row(subject, row, Tokenizer(eos_token_id=eos))
    actual = tokens[-1] == END, any("end without an end-of-sequence token" in note for note in notes)
    assert_equal(
        f"{eos=}: whether the text ends with it, and whether {notes} say so", actual, (eos == END, eos is None)
    )


@given(is_read=st.booleans())
def falsify_options_that_no_template_reads_are_named(subject: Any, is_read: bool) -> None:
    writer = subject.ChatWriter(Tokenizer(), options={"calm" if is_read else "calmer": True})
    assert bool(writer.notes()) != is_read, f"{is_read=}: the notes are {writer.notes()}; expected one if not read"


@given(template=READING, as_text=st.booleans())
def falsify_tools_and_parts_in_other_forms_are_equal(subject: Any, template: Tokenizer, as_text: bool) -> None:
    """Write tools as JSON text and a content in parts; `as_text`: whether the tools are text."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    other = ROW | {"tools": json.dumps(ROW["tools"]) if as_text else ROW["tools"]}
    other["messages"] = [*ROW["messages"][:1], {**ROW["messages"][1], "content": parts}, *ROW["messages"][2:]]
    expected, actual = (_write_row(subject, row, template)[0] for row in (ROW, other))
    assert_equal("documents of the other form", actual, expected)
    has_tools = expected[0][0][:2] == letters("Tb")
    assert_equal("whether the first document begins with the tools", has_tools, template.reads_tools)
    function = CALL["function"] | {"arguments": json.dumps(CALL["function"]["arguments"])}
    notes = _write_row(subject, _with(ROW, ("messages", 2, "tool_calls", 0, "function"), function), template)[1]
    is_named = any("whose arguments are JSON text" in note for note in notes)
    assert_equal(f"whether a note of {notes} says that arguments are text", is_named, "tool_calls" in template.reads)
