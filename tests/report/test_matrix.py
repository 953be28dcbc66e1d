"""A comparison as text, Markdown and JSON."""

from collections.abc import Callable
from pathlib import Path

import pv
from pv.report.matrix import render
from pv.results.comparison import Column, Comparison
from tests.results.handmade import contract, falsifier

Project = Callable[[str], Path]
MISSING = Column(name="peer", target="theirs", missing="its package is not installed")
COMPARISON = Comparison(contract=contract(falsifier()), columns=(MISSING,))


def test_a_wide_matrix_is_broken_into_tables_that_fit(project: Project) -> None:
    project("compared")
    found = pv.compare("mean")
    lines = render(found, "text", width=40).split("not claimed by")[0].splitlines()
    heads = [line.split() for line in lines if line.startswith(" " * 9 + "  ") and "FALSIFIED" not in line]
    assert [name for head in heads[:3] for name in head] == ["mean", "defective", "modest", "modest-again", "absent"]


def test_text_shows_a_missing_subject_with_its_reason_and_undecided_results() -> None:
    lines = render(COMPARISON).splitlines()
    assert lines[:2] == ["c 1.0.0", "  peer: theirs: undecided: its package is not installed"]
    assert lines[3:5] == ["   peer", "F  undecided"]
    assert lines[-1] == "1 subject, 0.0 s; seed none; exit 2"
