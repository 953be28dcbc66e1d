"""Attacks on fields of the data: one that changes no token is named in a line, and no other one is."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.chats.tokenizer import END, Tokenizer, letters

CALL = {"id": "c", "function": {"name": "b", "arguments": {"a": "ab"}}}
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
Path_ = tuple[str | int, ...]
templates = st.builds(
    Tokenizer,
    strips=st.sampled_from(["", "assistant"]),
    is_marked=st.booleans(),
    thinks=st.booleans(),
    reads=st.lists(st.sampled_from(["tool_calls", "name", "tool_call_id"]), unique=True).map(tuple),
    reads_tools=st.booleans(),
    skips=st.sampled_from(["", "system", "tool"]),
)


def _leaves(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in ("role", "type"):
                yield from _leaves(part, (*path, key))
    else:
        yield path


LEAVES = list(_leaves(ROW))
AMBIGUOUS = ("weight", "name", "reasoning_content")
"""Keys that one message may have with effect and another without."""


def _written(subject: Any, row: dict[str, Any], template: Tokenizer, turns: str) -> tuple[Any, list[str]]:
    """Return tokens and masks of the documents of a row, and the notes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chats.jsonl")
        path.write_text(json.dumps(row) + "\n")
        subject.write_chats(path, subject.ChatWriter(template, turns=turns), 999, Path(folder))
        chats = subject.read_chats(Path(folder))
        return [(each.tokens.tolist(), each.given.tolist()) for each in chats.documents], list(chats.notes)


def _with_change(row: dict[str, Any], path: Path_) -> dict[str, Any]:
    changed = copy.deepcopy(row)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    value = place[path[-1]]
    place[path[-1]] = value + "b" if isinstance(value, str) else 1 - value
    return changed


@given(path=st.sampled_from(LEAVES), template=templates, turns=st.sampled_from(["every", "last"]))
def falsify_fields_change_a_token_or_are_named(subject: Any, path: Path_, template: Tokenizer, turns: str) -> None:
    before, notes = _written(subject, ROW, template, turns)
    after, _ = _written(subject, _with_change(ROW, path), template, turns)
    keys = [key for key in path if isinstance(key, str)]
    name = ".".join(keys[1:] if keys[0] == "messages" else keys)
    if name == "weight":
        says = "have a weight that has no effect"
    elif path[:2] == ("messages", len(ROW["messages"]) - 1):
        says = "after the last answer are left out"
    elif name == "content":
        says = f"of role {ROW['messages'][path[1]]['role']!r} have a content"
    elif name.startswith("content."):
        says = "of contents have 'cached'" if name.endswith("cached") else "of role 'user' have a content"
    else:
        names = (".".join(name.split(".")[:depth]) for depth in range(1, 5))
        says = next((repr(each) for each in names if any(repr(each) in note for note in notes)), repr(name))
    is_named = any(says in note for note in notes)
    if before == after:
        assert is_named, f"a change of {path} changes no token, and the notes do not say {says}: {notes}"
    elif name.split(".")[-1] not in AMBIGUOUS and not (name == "content" and template.strips):
        assert not is_named, f"a change of {path} changes tokens, and a note says {says}: {notes}"


@given(eos=st.sampled_from([None, END]), row=st.sampled_from([{"text": "ab"}, {"prompt": "a", "completion": "b"}]))
def falsify_texts_without_an_end_are_named(subject: Any, eos: int | None, row: dict[str, str]) -> None:
    [(tokens, _)], notes = _written(subject, row, Tokenizer(eos_token_id=eos), "every")
    is_named = any("end without an end-of-sequence token" in note for note in notes)
    assert is_named == (eos is None) == (tokens[-1] != END), f"with the end {eos}: {tokens}, {notes}"


@given(named=st.booleans())
def falsify_options_that_no_template_reads_are_named(subject: Any, named: bool) -> None:
    writer = subject.ChatWriter(Tokenizer(), options={"calm" if named else "calmer": True})
    assert bool(writer.notes()) != named, f"notes: {writer.notes()}"


@given(template=templates, as_text=st.booleans())
def falsify_tools_and_parts_in_other_forms_are_equal(subject: Any, template: Tokenizer, as_text: bool) -> None:
    """Definitions of tools may be JSON text; a content in parts is its text."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    other = ROW | {"tools": json.dumps(ROW["tools"]) if as_text else ROW["tools"]}
    other["messages"] = [*ROW["messages"][:1], {**ROW["messages"][1], "content": parts}, *ROW["messages"][2:]]
    one, two = (_written(subject, row, template, "every")[0] for row in (ROW, other))
    assert one == two, f"{two}, not {one}"
    has_tools = one[0][0][:2] == letters("Tb")
    assert has_tools == template.reads_tools, f"the first document begins with {one[0][0][:2]}"
