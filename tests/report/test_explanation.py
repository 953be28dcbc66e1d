"""Explanations are aligned tables; a label that repeats is printed once."""

from pathlib import Path

import pv
from pv.contract.explanations import Explanation
from pv.report.explanation import code, contract, table

STATED = """schema: pv/1
metadata: {id: stated, version: 1.0.0, description: two equations, references: [none]}
equations:
  prose: {formula: as many as there are}
  twice: {domain: {x: real 0..1}, expression: 2 * x, implemented_by: twice(x), formula: 2x}
falsifiers:
- {id: F-TWICE-001, rule: twice, prediction: twice, if_fails: once, equation: twice}
"""


def test_code_shows_both_examples_with_their_file() -> None:
    found = Explanation(why="It is so.\n", wrong="a: 1\n", right="", file="b.json")
    assert code("PV1", "a rule", found).splitlines() == [
        "PV1  a rule",
        "",
        "It is so.",
        "",
        "Wrong (b.json):",
        "    a: 1",
        "",
        "Right: no such file (b.json)",
    ]
    assert code("PV1", "a rule", None) == "PV1  a rule\n"


def test_rows_are_aligned_and_labels_are_not_repeated() -> None:
    rows = [("kills", "one"), ("kills", "two"), ("next", "go")]
    assert table("title", rows) == "title\n  kills       one\n              two\n  next        go\n"


def test_long_rows_are_wrapped_below_their_text() -> None:
    first, *rest = table("title", [("claim", "word " * 30)], 60).splitlines()[1:]
    assert first.startswith("  claim       word") and rest
    assert all(line.startswith(" " * 14 + "word") and len(line) <= 60 for line in rest)


def test_equation_that_is_prose_only_is_called_a_statement(tmp_path: Path) -> None:
    (tmp_path / "stated.yaml").write_text(STATED)
    (loaded,) = pv.load([tmp_path / "stated.yaml"]).contracts
    rows = dict(contract(loaded, score=None, findings=()))
    assert (rows["equation"], rows["statement"]) == ("twice: 2x", "prose: as many as there are")
