"""Explanations are aligned tables; a label that repeats is printed once."""

from pv.contract.explanations import Explanation
from pv.report.explanation import code, table


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
