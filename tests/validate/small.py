"""The project `small`, edited, and the cells of its report."""

from collections.abc import Callable
from pathlib import Path

from pv.cells import Cell, Outcome
from pv.verdict import Report

Project = Callable[[str], Path]


def edit(path: Path, find: str, replace: str) -> None:
    text = path.read_text()
    assert text.count(find) == 1, f"{find!r} occurs {text.count(find)} times in {path}"
    path.write_text(text.replace(find, replace))


def cell(report: Report, falsifier: str, device: str = "cpu") -> Cell:
    (found,) = (c for v in report.contracts for c in v.cells if (c.falsifier.id, c.device) == (falsifier, device))
    return found


def outcomes(report: Report) -> dict[str, Outcome]:
    return {c.falsifier.id: c.outcome for v in report.contracts for c in v.cells if c.device == "cpu"}
