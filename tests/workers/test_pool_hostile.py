"""Falsifiers that misbehave: the right outcome, nothing left behind, the others unharmed."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pv
from pv.results.outcome import Outcome, Result
from pv.workers import tasks

PROJECT = Path(__file__).parents[1] / "projects" / "hostile"
ENDS = {
    "good-first": (Outcome.HELD, ""),
    "good-last": (Outcome.HELD, ""),
    "hang-in-python": (Outcome.ERROR, "stopped at its limit of 3 s of CPU time"),
    "hang-in-c": (Outcome.ERROR, "stopped at its limit of 3 s of CPU time"),
    "segfault": (Outcome.ERROR, "killed by signal 11 (SIGSEGV)"),
    "exit-zero": (Outcome.ERROR, "the worker ended without a result (exit status 0)"),
    "system-exit": (Outcome.ERROR, "SystemExit: 0"),
    "eat-memory": (Outcome.ERROR, "stopped at its memory limit"),
    "eat-memory-in-a-child": (Outcome.ERROR, "stopped at its memory limit"),
    "print-100-mb": (Outcome.VACUOUS, "the mutant 'tripled' survived it (its code was reached)"),
    "slow-to-shrink": (Outcome.FALSIFIED, "not shrunk: stopped after 15 s in which it waited and used no CPU time"),
    "flaky": (Outcome.ERROR, "the same input failed once and passed once; first failure: AssertionError"),
    "raises-nothing": (Outcome.FALSIFIED, ""),
    "leave-daemons": (Outcome.VACUOUS, "the mutant 'tripled' survived it (its code was reached)"),
    "daemons-then-exit-zero": (Outcome.ERROR, "the worker ended without a result (exit status 0)"),
    "daemons-then-hang": (Outcome.ERROR, "stopped after 3 s in which it waited and used no CPU time"),
    "close-everything": (Outcome.ERROR, "the worker ended without a result (exit status "),
    "stop-itself": (Outcome.ERROR, "stopped after 3 s in which it waited and used no CPU time"),
    "leave-a-thread": (Outcome.VACUOUS, "the mutant 'tripled' survived it (its code was reached)"),
    "kill-the-server": (Outcome.ERROR, "the fork server was killed while this task ran alone"),
    "beside-the-killer": (Outcome.HELD, ""),
    "long-counterexample": (Outcome.FALSIFIED, ""),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Result]]:
    """One validation of all of them; its temporary files are under a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shutil.copytree(PROJECT, tmp_path_factory.mktemp("hostile") / "project"))
        patch.setattr(tasks, "MEMORY_MIB", 500)
        temporary = tmp_path_factory.mktemp("temporary")
        patch.setattr("tempfile.tempdir", str(temporary))
        patch.setenv("HOSTILE_TEST", str(os.getpid()))
        patch.setenv("HOSTILE_FOLDER", str(tmp_path_factory.mktemp("signs")))
        report = pv.validate(jobs=2)
        assert list(temporary.iterdir()) == []
        yield {result.falsifier.id: result for result in report.contracts[0].results}


@pytest.mark.parametrize("name", ENDS)
def test_outcome(results: dict[str, Result], name: str) -> None:
    outcome, reason = ENDS[name]
    assert results[name].outcome is outcome
    assert results[name].reason.startswith(reason)


def test_nothing_is_left_behind(results: dict[str, Result]) -> None:
    left = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_ours(entry)]
    assert left == []


def _is_ours(entry: Path) -> bool:
    mark = f"HOSTILE_TEST={os.getpid()}\0".encode()
    try:
        return entry.name != str(os.getpid()) and mark in (entry / "environ").read_bytes()
    except OSError:
        return False


def test_a_long_counterexample_keeps_its_place_and_error(results: dict[str, Result]) -> None:
    trial = results["long-counterexample"].trial
    assert not trial.counterexample.exact
    assert trial.counterexample.error.startswith("AssertionError: assert len(xs) < 0\n  len(xs) = 100000\n")
    assert len(trial.counterexample.error) < 10_000


def test_of_long_output_head_and_tail_are_kept_with_its_size(results: dict[str, Result]) -> None:
    trial = results["print-100-mb"].trial
    assert trial.output.size == 100_000_000 + len("the last line\n")
    assert trial.output.text.startswith("xxxx") and trial.output.text.endswith("the last line\n")
    assert len(trial.output.text) < 100_000
    assert "bytes left out" in trial.output.text
