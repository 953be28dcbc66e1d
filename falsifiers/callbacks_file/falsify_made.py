"""Attacks on the callbacks that a file makes. The subject has `load_callbacks`, as `training.callbacks_file` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.support.scratch import scratch

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


@given(entries=st.lists(ARGUMENTS, max_size=4))
@example(entries=[{"threshold": 0.5}])
def falsify_arguments_reach_the_constructor(subject: Any, entries: list[dict[str, Any]]) -> None:
    with scratch() as root:
        path = root / "callbacks.toml"
        write(path, [(f"{HERE}:Mine", each) for each in entries])
        first, second = subject.load_callbacks(path), subject.load_callbacks(path)
    expected = [{"threshold": 0.1, "names": ["default"], **each} for each in entries]
    for made in (first, second):
        got = [each.state for each in made]
        assert repr(got) == repr(expected), f"{entries} make callbacks with the state {got}; expected {expected}"
        for each in made:
            each.state["names"].append("changed")  # reaches the others if they share it
