"""Which attempt follows from which trial."""

import pv
from pv.results.outcome import Outcome
from tests.commands.small import Project, edit, outcomes, result


def test_fail_fast_stops_at_the_first_failure(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "whole = epochs * steps", "whole = epochs * steps + 1")
    edit(folder / "contracts/counting.yaml", "find: epochs * steps,", "find: epochs * steps + 1,")
    report = pv.validate(fail_fast=True, jobs=1)
    assert report.exit_code == 1
    assert Outcome.FALSIFIED in outcomes(report).values()
    assert result(report, "C-RUN").reason == "not run: --fail-fast stopped at the first failure"
