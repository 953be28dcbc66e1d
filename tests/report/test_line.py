"""The cells of a contract's line, and their columns."""

from dataclasses import replace

import pytest

from pv.contract.finding import Finding, Severity
from pv.contract.model import Gate
from pv.report import render
from pv.report.line import cells
from pv.report.summary import sentence
from pv.results.outcome import Selection
from pv.results.trial import MutationScore, TrialStatus
from pv.results.verdict import Status, decide
from tests.report.equation_reports import report
from tests.report.handmade import PLAIN
from tests.results.handmade import contract, evidence, falsifier, judged, trial

PASSING, FAILING = report(None).contracts[0], PLAIN.contracts[0]


def test_survivors_that_the_gate_waives_are_named() -> None:
    survived = evidence(trial(), judged(TrialStatus.HELD))
    verdict = decide(contract(falsifier(), gate=Gate(mutants=frozenset())), survived, Selection())
    assert verdict.status is Status.PASS
    for form in ("text", "markdown", "junit"):
        assert "the gate waives survivors: m" in render(replace(PLAIN, contracts=(verdict,)), form)
    killed = decide(contract(falsifier(), gate=Gate(mutants=frozenset())), evidence(trial(), judged()), Selection())
    assert cells(killed)["remarks"] == ""


def test_claims_on_fewer_examples_are_counted() -> None:
    verdict = replace(PASSING, results=(replace(PASSING.results[0], fewer=True),))
    said = "1 result on fewer examples than the contract asks for"
    assert cells(verdict)["remarks"] == said
    assert said in sentence(verdict)
    assert said in render(replace(PLAIN, contracts=(verdict,)), "junit")


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
    assert cells(replace(FAILING, findings=(error,)))["remarks"] == "1 lint error, 1 undecided"
