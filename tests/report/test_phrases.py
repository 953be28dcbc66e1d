"""Notes, the closing line, and the choice of results that are shown in detail."""

from dataclasses import replace

import pytest

from pv.report import phrases, render
from tests.report.equation_reports import report
from tests.report.handmade import PLAIN, found


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_tolerance_that_a_contract_sets_is_shown_with_its_reason(form: str) -> None:
    given = report(None, tolerance={"relative": 1e-3, "absolute": 0, "why": "a table of 10 bits"})
    note = "the tolerance of double is set, relative 0.001, absolute 0: a table of 10 bits"
    assert note in render(given, form, verbose=True)


def test_results_with_one_exception_at_one_place_are_shown_together() -> None:
    refuted, error, vacuous = phrases.blocks(PLAIN.contracts[0])
    assert error.trial is not None
    raised = replace(error, trial=replace(error.trial, counterexample=found("no module")))
    assert phrases.repeated([refuted, raised, vacuous, raised]) == [[refuted], [raised, raised], [vacuous]]
