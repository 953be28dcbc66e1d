"""A comparison as text, Markdown and JSON."""

from pv.report.matrix import render
from pv.results.comparison import Column, Comparison
from tests.results.handmade import contract, falsifier

MISSING = Column(name="peer", target="theirs", missing="its package is not installed")
COMPARISON = Comparison(contract=contract(falsifier()), columns=(MISSING,))


def test_text_shows_a_missing_subject_with_its_reason_and_undecided_results() -> None:
    lines = render(COMPARISON).splitlines()
    assert lines[:2] == ["c 1.0.0", "  peer: theirs: undecided: its package is not installed"]
    assert lines[3:5] == ["   peer", "F  undecided"]
    assert lines[-1] == "1 subject, 0.0 s; seed none; exit 2"
