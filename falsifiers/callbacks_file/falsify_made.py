"""Attacks on the callbacks that a file makes. The subject has `load_callbacks`, as `training.callbacks_file` does."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks_file import mine

HERE = "falsifiers.callbacks_file.mine"
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"threshold": st.floats(0, 1), "names": st.lists(TEXT, max_size=3), "other": VALUES, "more": VALUES}
)


def in_toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{in_toml(name)} = {in_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value) if "." in repr(value) or "e" in repr(value) else f"{value!r}.0"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write(path: Path, entries: list[tuple[str, dict[str, Any]]]) -> None:
    """Write a file of callbacks, each with its use and arguments."""
    blocks = (f"[[callbacks]]\nuse = {json.dumps(use)}\narguments = {in_toml(given)}\n" for use, given in entries)
    path.write_text("\n".join(blocks), encoding="utf-8")


def state_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a `Mine` with these arguments."""
    return {"threshold": 0.1, "names": ["default"], **arguments}


@given(entries=st.lists(ARGUMENTS, max_size=4))
@example(entries=[{"threshold": 0.5}])
def falsify_arguments_reach_the_constructor(subject: Any, entries: list[dict[str, Any]]) -> None:
    uses = [f"{HERE}:{'Outer.Inner' if number % 2 else 'Mine'}" for number in range(len(entries))]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "callbacks.toml")
        write(path, list(zip(uses, entries, strict=True)))
        first, second = subject.load_callbacks(path), subject.load_callbacks(path)
    expected = [state_of(each) for each in entries]
    for made in (first, second):
        got = [each.state for each in made]
        assert repr(got) == repr(expected), f"{entries} make callbacks with the state {got}; expected {expected}"
        for each in made:
            each.state["names"].append("changed")  # reaches the others if they share it
        kinds = [type(each).__name__ for each in made]
        assert kinds == [use.rpartition(":")[2].rpartition(".")[2] for use in uses], f"{uses} make {kinds}"


def falsify_without_a_file_there_are_none(subject: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "callbacks.toml")
        for text in ("", "callbacks = []"):
            path.write_text(text)
            got = subject.load_callbacks(path)
            assert got == (), f"a file with {text!r} makes {got}"
    assert subject.load_callbacks(None) == (), "without a file there are callbacks"


@given(count=st.integers(1, 3))
def falsify_reading_imports_nothing(subject: Any, count: int) -> None:
    sys.modules.pop("antigravity", None)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "callbacks.toml")
        before = len(mine.made)
        write(path, [("this:s", {}), *[(f"{HERE}:Mine", {"other": "token-9"})] * count])
        specs = subject.read_specs(path)
    assert "this" not in sys.modules and len(mine.made) == before, "reading a file imports what it names"
    assert len(specs) == count + 1 and "token-9" not in repr(specs), f"the callbacks are shown as {specs}"
