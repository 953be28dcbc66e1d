"""The cells of a contract's line, and their columns."""

from dataclasses import replace

import pytest

from pv.contract.finding import Finding, Severity
from pv.report.line import cells, lines
from pv.report.summary import sentence
from pv.results.trial import MutationScore
from tests.report.equation_reports import report
from tests.report.handmade import PLAIN

PASSING, FAILING = report(None).contracts[0], PLAIN.contracts[0]


def test_each_figure_is_a_cell() -> None:
    assert cells(FAILING) == {
        "cpu": "falsifiers 1/5",
        "mutants": "mutants 1/1",
        "cuda": "cuda 1/1 recorded",
        "remarks": "",
    }


def test_the_same_figure_of_all_contracts_is_in_one_column() -> None:
    score = MutationScore(total=12, judged=10, killed=9, sampled=12)
    first, second = lines([replace(PASSING, score=score, partial=True), FAILING])
    assert first == "falsifiers 0/1               score 90 %                     1 of 1 selected"
    assert second == "falsifiers 1/5  mutants 1/1              cuda 1/1 recorded"


def test_claims_whose_mutants_were_not_tried_are_counted() -> None:
    untried = replace(PASSING.results[0], unjudged=True)
    verdict = replace(PASSING, results=(untried,))
    assert cells(verdict)["remarks"] == "1 of 1 not tried on mutants"
    assert "1 of 1 not tried on mutants" in sentence(verdict)


@pytest.mark.parametrize(
    ("fields", "cell"),
    [
        ({}, "score 99.9 %"),
        ({"changed": ("loss.py",)}, "score 99.9 % (stale)"),
        ({"sampled": 100}, "score 99.9 % (a sample)"),
    ],
)
def test_a_score_is_rounded_down_and_marked_where_it_satisfies_no_gate(fields: dict[str, object], cell: str) -> None:
    score = MutationScore(**{"total": 10_000, "judged": 10_000, "killed": 9_999, "sampled": 10_000, **fields})
    assert cells(replace(PASSING, score=score))["score"] == cell


def test_a_contract_with_lint_errors_that_ran_nothing_has_no_figures() -> None:
    error = Finding(code="PV133", severity=Severity.ERROR, location=FAILING.contract.location, message="")
    nothing = tuple(replace(result, trial=None) for result in FAILING.results)
    assert cells(replace(FAILING, results=nothing, findings=(error,))) == {"remarks": "1 lint error, nothing was run"}
    assert cells(replace(FAILING, findings=(error,)))["remarks"] == "1 lint error"
