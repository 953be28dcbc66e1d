"""A report is compared with its base: failures, fixes, stale evidence, and what was added or removed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Location
from pv.contract.model import Gate
from pv.engines.trial import TrialStatus
from pv.results.evidence import MutationScore
from pv.results.outcome import Outcome, Result, Selection
from pv.results.saved.changes import ChangeKind, find_differences
from pv.results.verdict import ContractVerdict, Report, Status, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import HELD, contract, decided, evidence, falsifier, judged, recorded, trial

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
    assert between(result(old), result(new)) == [(KINDS[old, new], text.removesuffix(": why"))]


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
    assert (change.kind, change.contract, change.text) == (ChangeKind.WEAKER, "d", "contract removed, with 1 claim")
    assert find_differences(base, report(GOOD, project=("c", "d"))) == ()
    lost = replace(GOOD, contract=contract(), results=(), status=Status.UNDECIDED, absent="in none of the reports")
    assert [change.kind for change in find_differences(report(lost), report(GOOD))] == [ChangeKind.ADDED]
    (change,) = find_differences(report(GOOD), report(lost))
    assert (change.kind, change.text) == (ChangeKind.UNDECIDED, "in none of the reports")


def test_a_verdict_that_changed_without_a_result_is_listed_with_its_reason() -> None:
    gated = decided(*HELD, gate=Gate(mutation_score=0.9))
    assert gated.status is Status.UNDECIDED
    (change,) = find_differences(report(GOOD), report(gated))
    text = "the gate requires a mutation score of 90 %, none is recorded"
    assert (change.kind, change.text) == (ChangeKind.UNDECIDED, text)
    low = replace(gated, status=Status.FAIL, score=MutationScore(total=9, judged=9, killed=0, sampled=9))
    (change,) = find_differences(report(GOOD), report(low))
    assert (change.kind, change.text) == (
        ChangeKind.FAILING,
        text.replace("none is recorded", "the recorded score is 0 %"),
    )
    failing = decided(trial(TrialStatus.ERROR, detail="d"))
    assert [change.kind for change in find_differences(report(GOOD), report(failing))] == [ChangeKind.FAILING]


DIFFERENCES = [
    "newly failing | c | I | I | c.yaml:17 | error on cpu, new: d",
    "weaker | c | G | G | c.yaml:6 in the base | removed: r",
    "weaker | c | H | H | c.yaml:18 | mutant no longer named: n",
    "weaker | c | n | n | c.yaml:9 in the base | mutant removed: f",
    "less measured | c | F |  |  | fewer valid examples: 40, was 100",
    "less measured | c |  |  |  | no mutation score recorded, was 100 %",
    "newly undecided | c | F |  |  | not measured on cuda, was held",
    "newly undecided | c | H |  |  | not measured on cuda, was held",
    "reworded | c | F |  | c.yaml:5 | rule changed: 's', was 'r'",
    "added | c | I |  |  | claim",
    "added | c | o |  |  | mutant",
    "added | d |  |  |  | contract with 1 claim and 2 mutants",
]


def at(line: int) -> Location:
    return Location(Path("c.yaml"), line, 3)


def test_every_difference_names_its_contract_clause_and_place() -> None:
    judging = {"kills": ("m",), "devices": ("cpu", "cuda"), "location": at(5)}
    score = MutationScore(total=9, judged=9, killed=9, sampled=9)
    mutants = contract().mutants
    third = falsifier("H", kills=("m", "n"), devices=("cuda",))
    claims = falsifier(**judging), falsifier("G", location=at(6)), third
    old = contract(*claims, mutants=tuple(replace(mutant, location=at(9)) for mutant in mutants))
    new = contract(
        falsifier(**judging, rule="s"),
        falsifier("I", location=at(17)),
        replace(third, kills=("m",), location=at(18)),
        mutants=(mutants[0], replace(mutants[1], id="o")),
        location=at(1),
    )
    ends = [trial(id_=id_, device=device) for id_ in "FGH" for device in ("cpu", "cuda")]
    ends += [judged(id_=id_, mutant=mutant) for id_ in "FGH" for mutant in "mn"]
    base = decide(old, replace(evidence(*ends), score=score), Selection(devices=("cpu", "cuda")))
    again = evidence(trial(valid=40), judged(), trial(TrialStatus.ERROR, "I", detail="d"))
    now, part = (decide(new, again, Selection(devices=("cpu",), falsifiers=ids)) for ids in (None, frozenset({"F"})))
    added = replace(GOOD, contract=replace(GOOD.contract, id="d"))
    changes = find_differences(report(base), report(now, added))
    assert [" | ".join((c.kind.value, c.contract, c.claim, c.name, c.place, c.text)) for c in changes] == DIFFERENCES
    unmeasured = [change.claim for change in find_differences(report(base), report(part)) if "not meas" in change.text]
    assert unmeasured == ["F"], "a claim that was not selected is no change"
