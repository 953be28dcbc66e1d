"""The details of one result."""

import pytest

from pv.report import FORMATS, render
from pv.results.outcome import Outcome
from pv.results.trial import EquationMutants
from pv.results.verdict import Status
from tests.report.equation_reports import MISSED, report
from tests.report.handmade import PLAIN


def test_an_attack_that_kills_no_equation_mutant_is_vacuous() -> None:
    found = report(EquationMutants(killed=0, total=3, survivors=(MISSED,)))
    (verdict,) = found.contracts
    (result,) = verdict.results
    assert (verdict.status, result.outcome) == (Status.FAIL, Outcome.VACUOUS)
    assert result.reason == "it kills none of 3 mutants of its equation"
    assert "survivor  c.yaml:3:15 double: 2 + n for 2 * n" in render(found, "text")


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_a_format_that_shows_what_was_seen_shows_the_guess_of_the_author_as_such_after_it(name: str) -> None:
    text = render(PLAIN, name, width=200)
    seen, guess = text.find("AssertionError: plainly said"), text.rfind("if this fails: cause plainly said")
    assert guess > seen if seen >= 0 else guess < 0
    assert text.count("cause plainly said") == text.count("if this fails: cause plainly said")
