"""Falsifiers that misbehave have the right outcome, leave nothing behind, and do not disturb other claims."""

import os
from collections.abc import Iterator

import pytest
import yaml

import pv
from pv.results.outcome import Result
from pv.workers import tasks
from tests.support.processes import marked_by
from tests.support.projects import PROJECTS, copy

ENDS = yaml.safe_load((PROJECTS / "hostile/outcomes.yaml").read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Result]]:
    """Validate all claims once, with temporary files in a separate folder, and return their results by id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy("hostile", tmp_path_factory.mktemp("hostile") / "project"))
        patch.setattr(tasks, "MEMORY_MIB", 500)
        temporary = tmp_path_factory.mktemp("temporary")
        patch.setattr("tempfile.tempdir", str(temporary))
        patch.setenv("HOSTILE_TEST", str(os.getpid()))
        patch.setenv("HOSTILE_FOLDER", str(tmp_path_factory.mktemp("signs")))
        report = pv.validate(jobs=2)
        assert list(temporary.iterdir()) == []
        yield {result.falsifier.id: result for result in report.contracts[0].results}


@pytest.mark.parametrize("name", ENDS)
def test_misbehaving_claim_has_its_outcome_and_reason(results: dict[str, Result], name: str) -> None:
    outcome, reason = ENDS[name]
    assert results[name].outcome.value == outcome
    assert results[name].reason.startswith(reason)


def test_no_process_is_left(results: dict[str, Result]) -> None:
    assert marked_by(f"HOSTILE_TEST={os.getpid()}\0") == []


def test_long_counterexamples_and_output_are_shortened(results: dict[str, Result]) -> None:
    trial = results["long-counterexample"].trial
    assert not trial.counterexample.exact
    assert trial.counterexample.error.startswith("AssertionError: assert len(xs) < 0\n  len(xs) = 100000\n")
    assert len(trial.counterexample.error) < 10_000
    trial = results["print-100-mb"].trial
    assert trial.output.size == 100_000_000 + len("the last line\n")
    assert trial.output.text.startswith("xxxx") and trial.output.text.endswith("the last line\n")
    assert len(trial.output.text) < 100_000
    assert "bytes left out" in trial.output.text
