"""The section of a contract holds its failures, its unmet gate and the evidence of every result."""

from pv.report.html.contract import section
from tests.report.handmade import PLAIN
from tests.report.html.pages import fragment, words


def test_failures_are_articles_worst_first_with_their_counterexample() -> None:
    found = fragment(section(PLAIN.contracts[0], PLAIN, 0))
    assert [words(each) for article in found.iter("article") for each in article.iter("h3")] == [
        "✗ falsified F-REFUTED on cpu",
        "! error F-BROKEN on cpu",
        "○ vacuous F-BARREN on cpu",
    ]
    assert "with number = 1 values = tensor([nan], float32)" in words(next(found.iter("article")))


def test_every_result_has_its_outcome_in_words_and_its_evidence() -> None:
    table = list(fragment(section(PLAIN.contracts[0], PLAIN, 0)).iter("table"))[-1]
    rows = [[words(cell) for cell in row] for row in table.iter("tr")]
    assert rows[1][:5] == [
        *("✓ held", "F-HELD", "cpu", "100 valid examples (3 rejected), seed 7, 0.25 s", "measured now"),
    ]
    assert rows[2][4] == "recorded on NVIDIA H200, torch 2.11.0, 2026-11-20 (0 days before this report)"
    assert [row[0] for row in rows[3:]] == ["✗ falsified", "! error", "○ vacuous", "? undecided"]
