"""Histories of runs, such as their metrics files, and the first place where two of them differ."""

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

TIMES = frozenset(["elapsed_s", "steps_per_s", "tokens_per_s", "flops_per_s"])


def without_times(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line or a result, and its metrics, without what depends on time."""
    kept = {name: value for name, value in entry.items() if name not in TIMES}
    return kept | {"metrics": {name: value for name, value in entry["metrics"].items() if name not in TIMES}}


def lines(directory: Path, out: str) -> list[dict[str, Any]]:
    """Return the lines of the metrics file of an output, without what depends on time."""
    return [without_times(json.loads(line)) for line in (directory / out / "metrics.jsonl").read_text().splitlines()]


def assert_same_lines(when: str, directory: Path, out: str, straight: str) -> None:
    """Assert equal metrics files of two outputs; the message has the first line that differs."""
    assert_same_history(f"{when}, the metrics file of {out}", lines(directory, out), lines(directory, straight))


def assert_same_history(what: str, seen: Sequence[Any], expected: Sequence[Any]) -> None:
    """Assert equal entries; the message has the first one that differs, by its differing values."""
    for number, (ours, theirs) in enumerate(zip_longest(seen, expected), start=1):
        assert ours == theirs, f"{what} differs in entry {number} of {len(expected)}: {difference(ours, theirs)}"


def difference(seen: Any, expected: Any, name: str = "") -> str:
    """Return where two values differ: those entries of dictionaries, otherwise both values."""
    if isinstance(seen, dict) and isinstance(expected, dict):
        wrong = [key for key in {**expected, **seen} if seen.get(key) != expected.get(key)]
        step = f"step {expected['step']}: " if "step" in expected else ""
        return step + "; ".join(difference(seen.get(key), expected.get(key), f"{name}{key} ") for key in wrong)
    return f"{name}is {seen!r}; expected {expected!r}"
