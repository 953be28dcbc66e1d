"""A report is compared with its base: failures, fixes, stale evidence, and what was added or removed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Location
from pv.contract.model import Gate
from pv.results.outcome import Outcome, Result
from pv.results.saved.changes import ChangeKind, find_differences
from pv.results.verdict import ContractVerdict, Report, Status
from tests.report.handmade import PLAIN
from tests.results.handmade import HELD, decided, falsifier, recorded

GOOD = decided(*HELD)


def report(*verdicts: ContractVerdict, project: tuple[str, ...] = ("c",)) -> Report:
    return replace(PLAIN, contracts=verdicts, findings=(), project={id_: f"{id_}.yaml" for id_ in project})


def result(outcome: Outcome, **fields: Any) -> Result:
    return replace(GOOD.results[0], outcome=outcome, **fields)


def between(old: Result, new: Result) -> list[tuple[ChangeKind, str]]:
    base, now = (report(replace(GOOD, results=(state,))) for state in (old, new))
    return [(change.kind, change.text) for change in find_differences(base, now)]


KINDS = {
    (Outcome.HELD, Outcome.FALSIFIED): ChangeKind.FAILING,
    (Outcome.UNDECIDED, Outcome.VACUOUS): ChangeKind.FAILING,
    (Outcome.FALSIFIED, Outcome.HELD): ChangeKind.FIXED,
    (Outcome.HELD, Outcome.UNDECIDED): ChangeKind.UNDECIDED,
    (Outcome.HELD, Outcome.NOT_CLAIMED): ChangeKind.WEAKER,
    (Outcome.PROVED, Outcome.HELD): ChangeKind.LESS,
}


@pytest.mark.parametrize(("old", "new"), KINDS)
def test_outcomes_decide_the_kind_of_a_change(old: Outcome, new: Outcome) -> None:
    text = f"{new.value} on cpu, was {old.value}: why"
    assert between(result(old), result(new, reason="why")) == [(KINDS[old, new], text)]


def test_a_vacuous_claim_is_not_fixed_by_leaving_out_its_mutants() -> None:
    held, unjudged = result(Outcome.HELD), result(Outcome.HELD, unjudged=True)
    assert between(result(Outcome.VACUOUS), unjudged) == []
    for old, new in ((Outcome.VACUOUS, held), (Outcome.ERROR, unjudged)):
        assert [kind for kind, _ in between(result(old), new)] == [ChangeKind.FIXED]


@pytest.mark.parametrize("outcome", Outcome)
def test_an_unchanged_outcome_is_no_change(outcome: Outcome) -> None:
    assert between(result(outcome), result(outcome)) == []


def test_stale_evidence_is_a_kind_of_change() -> None:
    claim = falsifier(devices=("cpu", "cuda"))
    records = (recorded(), recorded(changed=("a.py",)))
    fresh, stale = (decided(*HELD, claims=(claim,), recorded=(record,)) for record in records)
    (change,) = find_differences(report(fresh), report(stale))
    assert (change.kind, change.claim) == (ChangeKind.STALE, "F")
    assert change.text == "undecided on cuda, was held: stale, changed: a.py"


def test_a_removed_contract_is_weaker_and_one_that_was_not_selected_is_no_change() -> None:
    other = replace(GOOD, contract=replace(GOOD.contract, id="d", location=Location(Path("d.yaml"))))
    base = report(GOOD, other, project=("c", "d"))
    (change,) = find_differences(base, report(GOOD, project=("c",)))
    assert (change.kind, change.contract, change.text) == (ChangeKind.WEAKER, "d", "contract removed, with 1 claims")
    assert find_differences(base, report(GOOD, project=("c", "d"))) == ()


def test_a_verdict_that_changed_without_a_result_is_listed_with_its_reason() -> None:
    gated = decided(*HELD, gate=Gate(mutation_score=0.9))
    assert gated.status is Status.UNDECIDED
    (change,) = find_differences(report(GOOD), report(gated))
    text = "the gate requires a mutation score of 90 %, none is recorded"
    assert (change.kind, change.text) == (ChangeKind.UNDECIDED, text)
