"""The verdict is a pure function of claims and evidence: of one falsifier, its mutants, and its devices."""

import pytest

from pv.contract.finding import Finding, Severity
from pv.contract.model import Gate
from pv.report.summary import sentence
from pv.results.outcome import Outcome, Selection
from pv.results.proofs import replayed
from pv.results.trial import EquationMutants, Recorded, Trial, TrialStatus
from pv.results.verdict import Status, decide
from tests.report.handmade import of_equation
from tests.results.handmade import (
    FOUND,
    HELD,
    HERE,
    SURVIVED,
    contract,
    evidence,
    falsifier,
    judged,
    recorded,
    said,
    trial,
)


@pytest.mark.parametrize(
    ("one", "outcome", "reason"),
    [
        (trial(TrialStatus.REFUTED, counterexample=FOUND), Outcome.FALSIFIED, ""),
        (trial(TrialStatus.RAISED, counterexample=FOUND), Outcome.FALSIFIED, "the subject raised on a valid input"),
        (trial(TrialStatus.TIMEOUT, counterexample=FOUND, detail="60 s"), Outcome.FALSIFIED, "not shrunk: 60 s"),
        (
            trial(TrialStatus.OUT_OF_MEMORY, counterexample=FOUND, detail="4 GiB"),
            Outcome.FALSIFIED,
            "not shrunk: 4 GiB",
        ),
        (trial(TrialStatus.TIMEOUT, detail="60 s"), Outcome.ERROR, "60 s"),
        (trial(TrialStatus.CRASHED, detail="SIGSEGV"), Outcome.ERROR, "SIGSEGV"),
        (trial(TrialStatus.INVALID_MUTANT, detail="invalid mutant"), Outcome.ERROR, "invalid mutant"),
        (trial(TrialStatus.NO_EXAMPLES, detail="filter"), Outcome.VACUOUS, "no example was valid: filter"),
        (trial(reached=frozenset()), Outcome.VACUOUS, "the subject was never reached: no function of it ran"),
    ],
    ids=lambda value: value.status.value if isinstance(value, Trial) else "",
)
def test_any_other_end_of_a_required_falsifier_fails(one: Trial, outcome: Outcome, reason: str) -> None:
    verdict = decide(contract(falsifier()), evidence(one, judged()), Selection())
    assert said(verdict) == (Status.FAIL, outcome, reason)


@pytest.mark.parametrize("status", [TrialStatus.SKIPPED, TrialStatus.CANCELLED])
def test_what_was_not_tried_is_undecided(status: TrialStatus) -> None:
    verdict = decide(contract(falsifier()), evidence(trial(status, detail="why")), Selection())
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "why")


@pytest.mark.parametrize(
    ("mutant", "status", "outcome", "reason"),
    [
        (judged(TrialStatus.RAISED), *SURVIVED),
        (
            judged(TrialStatus.HELD, mutant_reached=True),
            *(Status.FAIL, Outcome.VACUOUS, "the mutant 'm' survived it (its code was reached)"),
        ),
        (
            judged(TrialStatus.HELD),
            *(Status.FAIL, Outcome.VACUOUS, "the mutant 'm' survived it (its code was never reached)"),
        ),
        (
            judged(TrialStatus.CANCELLED, detail="stopped"),
            *(Status.UNDECIDED, Outcome.UNDECIDED, "the mutant 'm' was not judged: stopped"),
        ),
    ],
)
def test_a_falsifier_is_judged_by_its_mutants(mutant: Trial, status: Status, outcome: Outcome, reason: str) -> None:
    assert said(decide(contract(falsifier()), evidence(trial(), mutant), Selection())) == (status, outcome, reason)


def test_a_mutant_that_was_not_tried_leaves_its_falsifier_undecided() -> None:
    verdict = decide(contract(falsifier(kills=("m", "n"))), evidence(*HELD), Selection())
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "the mutant 'n' was not judged")


def test_a_clean_subject_that_fails_at_small_arguments_is_an_error() -> None:
    small = trial(TrialStatus.REFUTED, mutant="", detail="too few steps")
    verdict = decide(contract(falsifier(run="once")), evidence(trial(), small), Selection())
    reason = "the clean subject fails at the run's `small` arguments: too few steps"
    assert said(verdict) == (Status.FAIL, Outcome.ERROR, reason)


def test_mutants_are_not_asked_where_they_are_not_wanted() -> None:
    verdict = decide(contract(falsifier()), evidence(trial()), Selection(mutants=False))
    assert said(verdict) == SURVIVED
    assert verdict.results[0].unjudged


@pytest.mark.parametrize(
    ("examples", "asked", "source", "fewer"),
    [(5, 5, None, True), (None, 100, None, False), (100, 100, None, False), (1, 1, "once", False)],
)
def test_a_claim_that_held_on_fewer_examples_than_its_own_is_marked(
    examples: int | None, asked: int, source: str | None, fewer: bool
) -> None:
    found = evidence(trial(asked=asked, valid=asked), judged())
    verdict = decide(contract(falsifier(run=source)), found, Selection(examples=examples))
    assert (verdict.status, verdict.results[0].fewer) == (Status.PASS, fewer)
    refuted = evidence(trial(TrialStatus.REFUTED, asked=asked))
    assert not decide(contract(falsifier()), refuted, Selection(examples=examples)).results[0].fewer


def test_nothing_measured_is_not_a_pass() -> None:
    assert said(decide(contract(falsifier()), evidence(), Selection())) == (
        *(Status.UNDECIDED, Outcome.UNDECIDED),
        "nothing was measured",
    )
    assert decide(contract(), evidence(), Selection()).status is Status.UNDECIDED


def test_a_falsifier_in_prose_is_undecided() -> None:
    verdict = decide(contract(falsifier(test=None, kills=()), strict=False), evidence(), Selection())
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "not bound: its test is prose")


@pytest.mark.parametrize("severity", [Severity.ERROR, Severity.REFUSAL])
def test_a_lint_error_fails_what_would_have_passed(severity: Severity) -> None:
    found = Finding(code="PV131", severity=severity, location=HERE, message="m")
    assert decide(contract(falsifier()), evidence(*HELD), Selection(), (found,)).status is Status.FAIL


def test_a_notice_changes_nothing() -> None:
    found = Finding(code="PV201", severity=Severity.NOTICE, location=HERE, message="m")
    assert decide(contract(falsifier()), evidence(*HELD), Selection(), (found,)).status is Status.PASS


def test_an_attack_that_kills_one_equation_mutant_needs_no_other() -> None:
    (verdict,) = of_equation(EquationMutants(killed=1, total=3)).contracts
    assert (verdict.status, verdict.results[0].outcome) == (Status.PASS, Outcome.HELD)


@pytest.mark.parametrize("mutants", [None, EquationMutants(killed=0, total=0)])
def test_an_attack_whose_equation_has_no_mutant_needs_an_automatic_one(mutants: EquationMutants | None) -> None:
    (verdict,) = of_equation(mutants).contracts
    assert (verdict.status, verdict.results[0].outcome) == (Status.UNDECIDED, Outcome.UNDECIDED)
    assert verdict.results[0].reason == "no automatic mutant was judged"


def test_counterexample_that_holds_in_a_fresh_process_is_an_error() -> None:
    first = trial(TrialStatus.REFUTED, counterexample=FOUND)
    again = replayed(first, trial(TrialStatus.HELD))
    assert (again.status, again.counterexample) == (TrialStatus.ERROR, FOUND)
    assert "does not reproduce" in again.detail


CUDA = falsifier(devices=("cpu", "cuda"))
ON_CUDA = trial(device="cuda")


@pytest.mark.parametrize(
    ("gate", "selection"),
    [(Gate(fresh=frozenset({"cuda"})), Selection()), (Gate(), Selection(require=frozenset({"cuda"})))],
    ids=["gate", "require"],
)
@pytest.mark.parametrize(
    ("records", "status", "reason"),
    [
        ((), Status.UNDECIDED, "not measured on cuda"),
        ((recorded(changed=("tiny.py", "b.py")),), Status.UNDECIDED, "stale, changed: tiny.py, b.py"),
        ((recorded(),), Status.PASS, "recorded on NVIDIA H200, 2026-11-20"),
        ((recorded(TrialStatus.REFUTED),), *(Status.FAIL, "recorded on NVIDIA H200, 2026-11-20")),
        (
            (recorded(TrialStatus.ERROR, detail="KeyError"),),
            *(Status.FAIL, "KeyError; recorded on NVIDIA H200, 2026-11-20"),
        ),
        (
            (recorded(reached=False),),
            Status.FAIL,
            "the subject was never reached: no function of it ran; recorded on NVIDIA H200, 2026-11-20",
        ),
    ],
)
def test_a_required_device_counts_by_its_record(
    gate: Gate, selection: Selection, records: tuple[Recorded, ...], status: Status, reason: str
) -> None:
    verdict = decide(contract(CUDA, gate=gate), evidence(*HELD, recorded=records), selection)
    assert (verdict.status, verdict.results[1].reason, verdict.results[1].required) == (status, reason, True)


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ((), Status.PASS),
        ((recorded(changed=("tiny.py",)),), Status.PASS),
        ((recorded(TrialStatus.SKIPPED),), Status.PASS),
        ((recorded(),), Status.PASS),
        ((recorded(TrialStatus.REFUTED, changed=("tiny.py",)),), Status.PASS),
        ((recorded(TrialStatus.REFUTED),), Status.FAIL),
    ],
)
def test_a_device_that_is_not_required_counts_only_by_a_fresh_refutation(
    records: tuple[Recorded, ...], status: Status
) -> None:
    verdict = decide(contract(CUDA), evidence(*HELD, recorded=records), Selection())
    assert (verdict.status, verdict.results[1].required) == (status, False)


def test_a_named_device_runs_and_its_record_is_not_asked() -> None:
    found = evidence(ON_CUDA, recorded=(recorded(TrialStatus.REFUTED),))
    assert said(decide(contract(CUDA), found, Selection(devices=("cuda",)))) == SURVIVED


def test_a_named_device_that_is_absent_is_undecided() -> None:
    found = evidence(recorded=(recorded(),), absent={"cuda": "torch sees no CUDA device"})
    verdict = decide(contract(CUDA), found, Selection(devices=("cuda",)))
    assert said(verdict) == (Status.UNDECIDED, Outcome.UNDECIDED, "torch sees no CUDA device")
    assert verdict.claimed == frozenset()


REQUIRED = Selection(require=frozenset({"cuda"}))


def test_a_contract_without_a_claim_on_the_required_device_is_undecided() -> None:
    known = evidence(trial(), judged())
    verdict = decide(contract(falsifier()), known, REQUIRED)
    assert (verdict.status, verdict.unclaimed) == (Status.UNDECIDED, ("cuda",))
    assert "nothing claimed on cuda" in sentence(verdict)
