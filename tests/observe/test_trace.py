"""Every event of a trace is in the file after a flush; in place of an event that cannot be read, the reason is."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the observer needs torch")
import torch

from pv.observe.trace import Late, Trace


def test_the_reason_why_an_event_cannot_be_read_is_written_in_the_same_flush(tmp_path: Path) -> None:
    trace = Trace(tmp_path, {})
    trace.add("loss", value=torch.tensor(2.0))
    trace.add("step", value=Late([torch.ones(1)], lambda values: values[1]))
    trace.flush()
    (file,) = tmp_path.iterdir()
    start, loss, trouble = (json.loads(line) for line in file.read_text().splitlines())
    assert (start["event"], loss["value"]) == ("start", 2.0)
    assert trouble == {"event": "trouble", "n": 2, "reason": "step: IndexError: list index out of range"}
