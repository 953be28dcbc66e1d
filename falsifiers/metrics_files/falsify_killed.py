"""Attacks on the events of runs that are killed and resumed. The subject is `pipeline.distill`, or has its names."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS
from falsifiers.resume.runs import resumed_to_the_end
from falsifiers.support.interruptions import before_operations, in_child, kill
from reference_trainer import EventLog

SLOW_S = 0.005
"""How long the observer takes for an event: it lags behind a run of some milliseconds a step."""


def slow_log(path: Path) -> EventLog:
    """Return an observer that writes every event, some time after it."""
    log = EventLog(path, hooks=HOOKS)

    def later(write: Any) -> Any:
        return lambda context: (time.sleep(SLOW_S), write(context))

    for hook in HOOKS:
        setattr(log, hook, later(getattr(log, hook)))
    return log


def events(path: Path) -> set[tuple[str, int, int | None]]:
    """Return the events of a file as (hook, step, micro-batch); the last line may be cut."""
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    read = [json.loads(line) for line in whole.splitlines()]
    return {(each["hook"], each["step"], each["micro_batch"]) for each in read}


@given(moments=st.lists(st.integers(5, 60), min_size=1, max_size=2), save_every=st.integers(1, 2))
def falsify_killed_runs_lose_no_event(subject: Any, moments: list[int], save_every: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, every = Path(name).resolve(), {"save_every": save_every}
        resumed_to_the_end(subject, directory, "straight", [slow_log(directory / "straight.jsonl")], **every)
        log = directory / "cut.jsonl"

        def work(moment: int) -> None:
            with before_operations(directory / "cut", lambda count: kill() if count == moment else None):
                resumed_to_the_end(subject, directory, "cut", [slow_log(log)], force=True, **every)

        for moment in moments:
            if in_child(lambda at=moment: work(at)) != "killed":
                return
        resumed_to_the_end(subject, directory, "cut", [slow_log(log)], force=True, **every)
        expected, seen = events(directory / "straight.jsonl"), events(log)
    lost = sorted(expected - seen, key=str)
    assert not lost, f"saved every {save_every} steps and killed before operations {moments}, the log lacks {lost}"
