"""Notes, the closing line, and the choice of results that are shown in detail."""

from dataclasses import replace

import pytest

from pv.report import FORMATS, phrases, render
from pv.results.outcome import Outcome
from tests.report.equation_reports import report
from tests.report.handmade import PLAIN, found


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_tolerance_that_a_contract_sets_is_shown_with_its_reason(form: str) -> None:
    given = report(None, tolerance={"relative": 1e-3, "absolute": 0, "why": "a table of 10 bits"})
    note = "the tolerance of double is set, relative 0.001, absolute 0: a table of 10 bits"
    assert note in render(given, form, verbose=True)


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "json"])
def test_no_report_mentions_a_tolerance_that_was_measured(form: str) -> None:
    assert "tolerance" not in render(report(None), form, verbose=True)


def test_failures_are_shown_in_detail_worst_first_and_undecided_results_by_reason() -> None:
    verdict = PLAIN.contracts[0]
    assert [result.outcome for result in phrases.blocks(verdict)] == [Outcome.FALSIFIED, Outcome.ERROR, Outcome.VACUOUS]
    assert {reason: [r.falsifier.id for r in results] for reason, results in phrases.undecided(verdict).items()} == {
        "plainly said": ["F-SKIPPED"]
    }


def test_results_with_one_exception_at_one_place_are_shown_together() -> None:
    refuted, error, vacuous = phrases.blocks(PLAIN.contracts[0])
    assert error.trial is not None
    raised = replace(error, trial=replace(error.trial, counterexample=found("no module")))
    assert phrases.repeated([refuted, raised, vacuous, raised]) == [[refuted], [raised, raised], [vacuous]]
