"""The JUnit report is valid XML, and has a failure if and only if the exit code is not 0."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from pv.contract.model import Gate
from pv.engines.trial import Code, TrialStatus
from pv.report import render
from pv.results.outcome import Outcome
from pv.results.saved.changes import BaseComparison, Change, ChangeKind, FailOn
from pv.results.verdict import Report, Status
from tests.report.handmade import HOSTILE, PLAIN
from tests.results.handmade import BOTH, FOUND, HELD, decided, trial


def report(*contracts: Any, **fields: Any) -> Report:
    return replace(PLAIN, **{"findings": (), "notes": (), **fields, "contracts": contracts})


def failed_cases(report: Report, **view: Any) -> list[str]:
    """Return the cases that a reader of JUnit XML counts as failed."""
    suites = JUnitXml.fromstring(render(report, "junit", **view).encode())
    return [case.name for suite in suites for case in suite if any(isinstance(r, Failure | Error) for r in case.result)]


def test_characters_that_xml_does_not_allow_are_replaced() -> None:
    root = ET.fromstring(render(HOSTILE, "junit"))
    failure = root.find("testsuite[@name='c']/testcase[@name='F-REFUTED[cpu]']/failure")
    assert failure.get("message").startswith(
        "AssertionError: a\ufffdb\ufffd[31mred\ufffd\ufffd <b>&amp;]]> | `x` *y* [z](u)\u2028"
    )


def test_unmet_gate_fails_even_if_every_case_passes_or_is_skipped() -> None:
    gated = decided(*HELD, gate=Gate(id="G-1", mutation_score=0.9))
    assert gated.status is Status.UNDECIDED
    shown = report(gated)
    assert failed_cases(shown) == ["gate G-1"]
    assert "the gate requires a mutation score of 90 %, none is recorded" in render(shown, "junit")


def test_failed_claim_is_counted_once() -> None:
    (verdict,) = PLAIN.contracts
    results = tuple(result for result in verdict.results if result.outcome is Outcome.FALSIFIED)
    shown = report(replace(verdict, results=results))
    assert failed_cases(shown) == [f"{result.falsifier.id}[cpu]" for result in results]
    assert failed_cases(report(decided(trial(TrialStatus.ERROR)))) == ["F[cpu]"]
    scored = replace(verdict.contract, gate=Gate(id="G-1", mutation_score=0.9))
    assert failed_cases(report(replace(verdict, results=results, contract=scored))) == ["F-REFUTED[cpu]", "gate G-1"]


def test_a_change_is_a_failed_case_if_it_fails_the_comparison() -> None:
    changes = tuple(Change(kind=kind, contract="c", claim=kind.name, text="t") for kind in ChangeKind)
    for fail_on, names in ((FailOn.WEAKER, ["c WEAKER"]), (FailOn.NEVER, [])):
        compared = BaseComparison(changes=changes, fail_on=fail_on)
        assert failed_cases(report(decided(*HELD)), compared=compared) == names


def test_a_case_has_the_locations_of_its_claim_and_of_the_code_and_a_suite_its_time() -> None:
    example = replace(FOUND, code=(Code("tiny.py", 7, 9, "double"),))
    failing = decided(trial(TrialStatus.REFUTED, counterexample=example))
    case = ET.fromstring(render(report(failing), "junit")).find("testsuite/testcase")
    assert (case.get("file"), case.get("line")) == ("contract.yaml", "3")
    assert case.find("properties/property[@name='code']").get("value") == "tiny.py:7"
    timed = decided(*(trial(id_=id_, seconds=1.5) for id_ in "FG"), claims=BOTH)
    assert ET.fromstring(render(report(timed), "junit")).find("testsuite").get("time") == "3.000", "of all its cases"


PASSING = decided(*HELD)
CASES = {
    "passing": report(PASSING),
    "nothing": report(),
    "unmatched": report(PASSING, unmatched=("--only X",)),
    "interrupted": report(PASSING, interrupted=True),
    "refused": report(PASSING, findings=PLAIN.findings),
    "notice": report(PASSING, findings=PLAIN.findings[:1]),
    "missing": report(PASSING, replace(PASSING, results=(), status=Status.UNDECIDED, absent="in none of the reports")),
    "plain": PLAIN,
}


@pytest.mark.parametrize("name", CASES)
def test_report_has_a_failure_if_and_only_if_the_exit_code_is_not_0(name: str) -> None:
    assert bool(failed_cases(CASES[name])) == bool(CASES[name].exit_code)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("required", [True, False])
def test_result_fails_if_it_is_refuted_or_a_required_failure(outcome: Outcome, required: bool) -> None:
    (held,) = PASSING.results
    result = replace(held, outcome=outcome, required=required)
    suites = JUnitXml.fromstring(render(report(replace(PASSING, results=(result,))), "junit").encode())
    ((case, _),) = suites
    fails = any(isinstance(part, Failure | Error) for part in case.result)
    skipped = any(isinstance(part, Skipped) for part in case.result)
    assert fails == (outcome is Outcome.FALSIFIED or (required and outcome in (Outcome.ERROR, Outcome.VACUOUS)))
    assert skipped == (not fails and outcome not in (Outcome.HELD, Outcome.PROVED))
