"""The host waits for no device between two flushes of a trace."""

import json
from functools import partial
from pathlib import Path

import pytest

from pv.suites.training_run.run import read_folder

pytest.importorskip("torch", reason="the observer needs torch")
from tests.observe.observed_steps import count
from tests.reference_trainer.forked import in_child


def test_the_observer_reads_no_value_between_two_flushes(tmp_path: Path) -> None:
    assert in_child(partial(count, tmp_path)) == 0
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["observed"] == counts["script"]
    assert counts["reading"] != counts["script"], "a value that the observer reads at a loss is not counted"
    run = read_folder(tmp_path, complete=True)
    assert run.steps == 20 and run.troubles == []
