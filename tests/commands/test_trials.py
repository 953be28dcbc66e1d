"""Which attempt follows from which trial."""

from pathlib import Path

import pv
from pv.commands.attempt import Options
from pv.commands.trials import Trials
from pv.results.outcome import Outcome
from pv.source.project import find_project
from tests.commands.small import Project, edit, outcomes, result


def test_fail_fast_stops_at_the_first_failure(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "whole = epochs * steps", "whole = epochs * steps + 1")
    edit(folder / "contracts/counting.yaml", "find: epochs * steps,", "find: epochs * steps + 1,")
    report = pv.validate(fail_fast=True, jobs=1)
    assert report.exit_code == 1
    assert Outcome.FALSIFIED in outcomes(report).values()
    assert result(report, "C-RUN").reason == "not run: --fail-fast stopped at the first failure"


def test_without_contracts_no_worker_is_started_and_nothing_is_found(tmp_path: Path) -> None:
    trials = Trials(find_project(tmp_path), (), {}, {}, Options(jobs=1))
    trials.run()
    assert (trials.devices, trials.notes) == ({}, ())
