"""The section of a contract holds its failures, its unmet gate and the evidence of every result."""

from dataclasses import replace

from pv.report.html.contract import evidence, section
from pv.results.trial import DeviceInfo
from tests.report.handmade import PLAIN
from tests.report.html.pages import fragment, words
from tests.results.test_saved import full


def test_failures_are_articles_worst_first_with_their_counterexample() -> None:
    found = fragment(section(PLAIN.contracts[0], PLAIN, 0))
    assert [words(each) for article in found.iter("article") for each in article.iter("h3")] == [
        "✗ falsified F-REFUTED on cpu",
        "! error F-BROKEN on cpu",
        "○ vacuous F-BARREN on cpu",
    ]
    assert "with number = 1 values = tensor([nan], float32)" in words(next(found.iter("article")))


def test_what_the_gate_lacks_is_listed() -> None:
    shown = words(fragment(section(full().contracts[0], full(), 0)))
    assert "the gate requires a mutation score of 90 %, the recorded one is 87.5 %" in shown


def test_every_result_has_its_outcome_in_words_and_its_evidence() -> None:
    table = list(fragment(section(PLAIN.contracts[0], PLAIN, 0)).iter("table"))[-1]
    rows = [[words(cell) for cell in row] for row in table.iter("tr")]
    assert rows[1][:5] == [
        *("✓ held", "F-HELD", "cpu", "100 valid examples (3 rejected), seed 7, 0.25 s", "measured now"),
    ]
    assert rows[2][4] == "recorded on NVIDIA H200, torch 2.11.0, 2026-11-20 (0 days before this report)"
    assert [row[0] for row in rows[3:]] == ["✗ falsified", "! error", "○ vacuous", "? undecided"]


def test_recorded_evidence_shows_its_age_and_what_changed_since() -> None:
    result = PLAIN.contracts[0].results[1]
    assert result.recorded is not None
    old = replace(result, recorded=replace(result.recorded, when="2026-11-01", changed=("a.py", "b.py")))
    assert list(evidence(old, PLAIN)) == [
        "recorded on NVIDIA H200, torch 2.11.0, 2026-11-01 (19 days before this report); stale, changed: a.py, b.py"
    ]


def test_measured_evidence_names_its_device() -> None:
    report = replace(PLAIN, devices={"cpu": DeviceInfo(name="Xeon")})
    assert list(evidence(PLAIN.contracts[0].results[0], report)) == ["measured now on Xeon"]


def test_a_result_without_evidence_says_so() -> None:
    assert list(evidence(replace(PLAIN.contracts[0].results[0], trial=None), PLAIN)) == ["none"]
