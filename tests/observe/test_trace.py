"""Every event of a trace is in the file after a flush; in place of an event that cannot be read, the reason is."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the observer needs torch")
import torch

from pv.observe.launch import Options
from pv.observe.observer import Observer
from pv.observe.trace import MOST_WAITING, Late, Trace


def test_the_reason_why_an_event_cannot_be_read_is_written_in_the_same_flush(tmp_path: Path) -> None:
    trace = Trace(tmp_path, {})
    trace.add("loss", value=torch.tensor(2.0))
    trace.add("step", value=Late([torch.ones(1)], lambda values: values[1]))
    trace.flush()
    (file,) = tmp_path.iterdir()
    start, loss, trouble = (json.loads(line) for line in file.read_text().splitlines())
    assert (start["event"], loss["value"]) == ("start", 2.0)
    assert trouble == {"event": "trouble", "n": 2, "reason": "step: IndexError: list index out of range"}


def test_process_without_a_step_keeps_few_events_in_memory_and_writes_all_at_its_first_step(tmp_path: Path) -> None:
    observer = Observer(tmp_path, Options())
    count = 2 * MOST_WAITING + 2
    for number in range(count):
        observer.add("evaluation_loss", value=torch.tensor(float(number)))
        assert len(observer.trace._waiting) <= MOST_WAITING
    assert list(tmp_path.iterdir()) == []
    observer.trace.flush()
    observer.add("step")
    observer.trace.flush()
    (file,) = tmp_path.iterdir()
    start, *losses, step = (json.loads(line) for line in file.read_text().splitlines())
    assert (start["event"], step) == ("start", {"event": "step", "n": count})
    assert [(loss["n"], loss["value"]) for loss in losses] == [(n, float(n)) for n in range(count)]
