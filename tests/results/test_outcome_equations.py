"""An equation falsifier is judged by the mutants of its equation."""

import pytest

from pv.results.outcome import Outcome
from pv.results.trial import EquationMutants
from pv.results.verdict import Status
from tests.report.equation_reports import report


def test_an_attack_that_kills_one_equation_mutant_needs_no_other() -> None:
    (verdict,) = report(EquationMutants(killed=1, total=3)).contracts
    assert (verdict.status, verdict.results[0].outcome) == (Status.PASS, Outcome.HELD)


@pytest.mark.parametrize("mutants", [None, EquationMutants(killed=0, total=0)])
def test_an_attack_whose_equation_has_no_mutant_needs_an_automatic_one(mutants: EquationMutants | None) -> None:
    (verdict,) = report(mutants).contracts
    assert (verdict.status, verdict.results[0].outcome) == (Status.UNDECIDED, Outcome.UNDECIDED)
    assert verdict.results[0].reason == "no automatic mutant was judged"
