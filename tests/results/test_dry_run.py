"""The exit code and the problems of a dry run."""

import pytest

from pv.contract.finding import Finding, Severity
from pv.results.dry_run import Built, DryRun
from tests.results.handmade import HERE


def result(*problems: str, severity: Severity | None = None) -> DryRun:
    tasks = tuple(Built(device="cpu", kind="property", claim="F", mutant="m", problem=each) for each in problems)
    found = [Finding(code="PV131", severity=severity, location=HERE, message="why")] if severity is not None else []
    return DryRun(findings=tuple(found), devices=("cpu",), tasks={"c": tasks}, automatic={"c": 0})


@pytest.mark.parametrize(
    ("problems", "severity", "code"),
    [
        ([""], None, 0),
        ([""], Severity.NOTICE, 0),
        (["", "no file"], None, 1),
        ([""], Severity.ERROR, 1),
        ([""], Severity.REFUSAL, 3),
        ([], None, 2),
    ],
)
def test_exit_code_is_that_of_the_worst_problem(problems: list[str], severity: Severity | None, code: int) -> None:
    assert result(*problems, severity=severity).exit_code == code


def test_problems_name_the_task_and_its_mutant() -> None:
    assert result("no file").problems == ("error: F on cpu / m: no file",)
