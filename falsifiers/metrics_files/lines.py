"""Logged steps, and metrics files in temporary directories."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def refusal(call: Any, kind: type[Exception]) -> str:
    """Return the message of the error that the call raises; empty if it raises none."""
    try:
        call()
    except kind as error:
        return str(error) or "an error without a message"
    return ""
