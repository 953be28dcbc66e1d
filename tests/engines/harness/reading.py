"""The projects with harnesses, and the cells of their reports."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pv.results.outcome import Result
from pv.results.trial import Trial, TrialStatus
from pv.results.verdict import Report

PROJECTS = Path(__file__).parents[2] / "projects"
Project = Callable[[str], Path]


def result(report: Report, claim: str) -> Result:
    (found,) = (c for v in report.contracts for c in v.results if c.falsifier.id == claim)
    return found


def edit(path: Path, find: str, replacement: str) -> None:
    text = path.read_text()
    assert text.count(find) == 1, f"{find!r} occurs {text.count(find)} times in {path}"
    path.write_text(text.replace(find, replacement))


def trial_of(harness: str, status: TrialStatus, **more: object) -> Trial:
    return replace(Trial(falsifier=harness, device="cpu", status=status, reached=frozenset({"counting:share"})), **more)
