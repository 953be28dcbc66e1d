"""Logged steps, and metrics files in temporary directories."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import strategies as st

import reference_trainer

NUMBERS = st.floats()
METRICS = st.dictionaries(st.text(max_size=8), NUMBERS, min_size=1, max_size=4)
STEPS = st.fixed_dictionaries(
    {
        "epoch": st.integers(1, 10**9),
        "learning_rate": st.none() | NUMBERS,
        "elapsed_s": NUMBERS,
        "tokens": st.integers(0, 10**18),
        "metrics": METRICS,
    }
)
"""Fields of a logged step, but for its number."""
OTHERS: dict[str, Any] = {"loss": 1.5, "best_loss": 1.5, "epochs": 2, "steps_per_epoch": 5, "total_steps": 10}
SOME = {"epoch": 1, "learning_rate": 0.5, "elapsed_s": 0.25, "tokens": 7, "metrics": {"loss": 1.5}}


def context(step: int, fields: dict[str, Any] = SOME) -> Any:
    return reference_trainer.Context(step=step, **fields, **OTHERS)


def begin(callback: Any, step: int = 0) -> None:
    callback.on_train_begin(context(step, {**SOME, "metrics": {}}))


def write(callback: Any, steps: Any) -> None:
    """Begin a run, and tell the callback of these steps."""
    begin(callback)
    for step in steps:
        callback.on_log(context(step))


def steps_in(subject: Any, path: Path) -> list[int]:
    return [line.step for line in subject.read_metrics(path)]


def refusal(call: Any, kind: type[Exception]) -> str:
    """Return the message of the error that the call raises; empty if it raises none."""
    try:
        call()
    except kind as error:
        return str(error) or "an error without a message"
    return ""


def strict_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, which is strict JSON and ends with a whole line."""
    text = path.read_text(encoding="utf-8")
    assert not text or text.endswith("\n"), f"the last line of {text!r} has no end"
    return [json.loads(line, parse_constant=_no_json) for line in text.splitlines()]


def _no_json(constant: str) -> None:
    raise AssertionError(f"a line holds {constant}, which is no JSON")


def in_json(value: Any) -> Any:
    """Return a number, or numbers by name, as JSON has them: one that is not finite is a string."""
    if isinstance(value, dict):
        return {name: in_json(each) for name, each in value.items()}
    return value if value is None or math.isfinite(value) else str(value)


def assert_fits(schema: str, lines: list[dict[str, Any]]) -> None:
    """Assert that every line fits the schema, a JSON text."""
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    for number, line in enumerate(lines, 1):
        problems = [error.message for error in validator.iter_errors(line)]
        assert not problems, f"line {number} does not fit its schema: {problems}"
