"""Attacks on the comparison of conditions. The subject is `storage.retention`, or has its names."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

LEAVES = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([1.0, 0.1, -0.0, 0.0, "1", "", "a"])
JSON = st.recursive(LEAVES, lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from("ab"), each))
NAMES = st.sampled_from(["seed", "batch_size", "dtype"])
CONDITIONS = st.dictionaries(NAMES, JSON)


@given(saved=CONDITIONS, changes=CONDITIONS, removed=st.sets(NAMES))
def falsify_drifts(subject: Any, saved: dict[str, Any], changes: dict[str, Any], removed: set[str]) -> None:
    present = {name: value for name, value in {**saved, **changes}.items() if name not in removed}
    expected = []
    for name in sorted({*saved, *present}):
        old, new = (_text(each, name) for each in (saved, present))
        if old != new:
            expected.append(f"{name} was {old} and is {new}")
    for before, now in ((saved, present), (dict(reversed(saved.items())), dict(reversed(present.items())))):
        lines = subject.drifts(before, now)
        assert lines == expected, f"from {before} to {now} the drifts are {lines}; expected {expected}"


def _text(values: dict[str, Any], name: str) -> str:
    return json.dumps(values[name], sort_keys=True) if name in values else "absent"
