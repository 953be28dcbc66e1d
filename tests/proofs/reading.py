"""The projects with harnesses, and the cells of their reports."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pv.cells import Cell
from pv.evidence import Ending, Trial
from pv.verdict import Report

PROJECTS = Path(__file__).parents[1] / "projects"
Project = Callable[[str], Path]


def cell(report: Report, claim: str) -> Cell:
    (found,) = (c for v in report.contracts for c in v.cells if c.falsifier.id == claim)
    return found


def edit(path: Path, find: str, replacement: str) -> None:
    text = path.read_text()
    assert text.count(find) == 1, f"{find!r} occurs {text.count(find)} times in {path}"
    path.write_text(text.replace(find, replacement))


def trial_of(harness: str, ending: Ending, **more: object) -> Trial:
    return replace(Trial(falsifier=harness, device="cpu", ending=ending, reached=frozenset({"counting:share"})), **more)
