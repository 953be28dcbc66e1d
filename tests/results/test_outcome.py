"""The verdict is a pure function of claims and evidence; here of one falsifier, its mutants, and its devices."""

from dataclasses import replace
from typing import Any

import pytest

from pv.contract.finding import Finding, Severity
from pv.contract.model import Binding, Gate, Harness
from pv.engines.engine import ENDED_EARLY
from pv.engines.trial import EquationMutants, Trial, TrialStatus
from pv.results.evidence import PROOFS
from pv.results.outcome import Outcome, Result, Selection, corrected_by_replay, must_replay
from pv.results.verdict import ContractVerdict, Status, decide
from tests.report.handmade import report_of_equation
from tests.results.handmade import FOUND, HELD, HERE, contract, decided, evidence, falsifier, judged, recorded, trial

PASSED, UNDECIDED = (Status.PASS, Outcome.HELD, ""), (Status.UNDECIDED, Outcome.UNDECIDED)


def judgement(verdict: ContractVerdict) -> tuple[Status, Outcome, str]:
    (result,) = verdict.results
    return verdict.status, result.outcome, result.reason


@pytest.mark.parametrize(
    ("failing_trial", "outcome", "reason"),
    [
        (trial(TrialStatus.REFUTED, counterexample=FOUND), Outcome.FALSIFIED, ""),
        (trial(TrialStatus.RAISED, counterexample=FOUND), Outcome.FALSIFIED, "the subject raised on a valid input"),
        (trial(TrialStatus.TIMEOUT, counterexample=FOUND, detail="60 s"), Outcome.FALSIFIED, "not shrunk: 60 s"),
        (trial(TrialStatus.OUT_OF_MEMORY, counterexample=FOUND, detail="4"), Outcome.FALSIFIED, "not shrunk: 4"),
        (trial(TrialStatus.TIMEOUT, detail="60 s"), Outcome.ERROR, "60 s"),
        (trial(TrialStatus.CRASHED, detail="SIGSEGV"), Outcome.ERROR, "SIGSEGV"),
        (trial(TrialStatus.INVALID_MUTANT, detail="invalid mutant"), Outcome.ERROR, "invalid mutant"),
        (trial(TrialStatus.NO_EXAMPLES, detail="filter"), Outcome.VACUOUS, "no example was valid: filter"),
        (trial(reached=frozenset()), Outcome.VACUOUS, "the subject was never reached: no function of it ran"),
    ],
    ids=lambda value: value.status.value if isinstance(value, Trial) else "",
)
def test_failed_trial_of_a_required_falsifier_fails_the_contract(
    failing_trial: Trial, outcome: Outcome, reason: str
) -> None:
    assert judgement(decided(failing_trial, judged())) == (Status.FAIL, outcome, reason)


@pytest.mark.parametrize("status", [TrialStatus.SKIPPED, TrialStatus.CANCELLED])
def test_untried_claim_is_undecided(status: TrialStatus) -> None:
    assert judgement(decided(trial(status, detail="why"))) == (*UNDECIDED, "why")


VACUOUS, SURVIVOR = (Status.FAIL, Outcome.VACUOUS), "the mutant 'm' survived"
BROKEN = (Status.FAIL, Outcome.ERROR)


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (judged(TrialStatus.RAISED), PASSED),
        (judged(TrialStatus.HELD, mutant_reached=True), (*VACUOUS, f"{SURVIVOR} (the mutated code was reached)")),
        (judged(TrialStatus.HELD), (*VACUOUS, f"{SURVIVOR} (the mutated code was never reached)")),
        (judged(TrialStatus.TIMEOUT, counterexample=FOUND), PASSED),
        (judged(TrialStatus.TIMEOUT, detail="d"), (*BROKEN, "the mutant 'm' could not be judged: d")),
        (judged(TrialStatus.CANCELLED, detail="stopped"), (*UNDECIDED, "stopped")),
        (judged(TrialStatus.ERROR, detail="d"), (*BROKEN, "the mutant 'm' could not be judged: d")),
        (judged(mutant=""), (*BROKEN, "the clean subject fails at the run's `small` arguments: refuted")),
        (judged(TrialStatus.CANCELLED, mutant="", detail="stopped"), (*UNDECIDED, "stopped")),
    ],
)
def test_a_falsifier_is_judged_by_its_mutants(mutant: Trial, expected: tuple[Status, Outcome, str]) -> None:
    assert judgement(decided(trial(), mutant)) == expected


@pytest.mark.parametrize(
    ("generated", "mutants", "expected"),
    [
        (2, (judged(TrialStatus.HELD, mutant="n"), judged()), PASSED),
        (
            1,
            (judged(TrialStatus.HELD),),
            (*VACUOUS, "it kills no mutant: 1 generated mutant of the code it reaches survived"),
        ),
        (1, (judged(TrialStatus.ERROR, detail="d"),), (*BROKEN, "none of 1 generated mutants could be judged: d")),
        (2, (judged(TrialStatus.HELD),), (*UNDECIDED, "no generated mutant was judged")),
        (
            2,
            (judged(TrialStatus.HELD), judged(TrialStatus.ERROR, mutant="n")),
            (*VACUOUS, "it kills no mutant: 2 generated mutants of the code it reaches survived"),
        ),
        (0, (), (*VACUOUS, "it kills no mutant: the code it reaches has nothing to mutate; declare a mutant")),
    ],
)
def test_a_falsifier_without_kills_is_judged_by_generated_mutants(
    generated: int, mutants: tuple[Trial, ...], expected: tuple[Status, Outcome, str]
) -> None:
    results = replace(evidence(trial(), *mutants), drawn_mutants={"F": generated})
    verdict = decide(contract(falsifier(kills=())), results, Selection())
    assert (judgement(verdict), verdict.results[0].waived) == (expected, ())


PROOF = Harness(id="F", rule="r", if_fails="i", location=HERE, test=Binding("f.py", "p"), bounds={"n": "0..9"})


def test_a_proof_is_near_its_limit_by_its_cpu_time() -> None:
    proved = Result(falsifier=PROOF, device="cpu", outcome=Outcome.PROVED)
    trials = [trial(cpu_s=cpu_s, seconds=31 - cpu_s) for cpu_s in (31, 0)]
    assert [replace(proved, trial=trial).near_limit for trial in trials] == [True, False]


ON_H200 = "recorded on NVIDIA H200, 2026-11-20"


@pytest.mark.parametrize(
    ("one", "record", "expected"),
    [
        (trial(detail="10 cases"), None, (Status.PASS, Outcome.PROVED, "10 cases")),
        (trial(TrialStatus.NO_EXAMPLES, detail="empty"), None, (*VACUOUS, "empty")),
        (trial(TrialStatus.TIMEOUT, detail="60 s"), None, (*UNDECIDED, "60 s")),
        (trial(TrialStatus.CRASHED, detail="d"), {"detail": "10 cases"}, (*BROKEN, "d")),
        (
            trial(TrialStatus.TIMEOUT, detail="60 s", counterexample=FOUND),
            {"detail": "10 cases"},
            (Status.FAIL, Outcome.FALSIFIED, "not shrunk: 60 s"),
        ),
        (
            trial(TrialStatus.TIMEOUT, detail="60 s"),
            {"detail": "10 cases"},
            (Status.PASS, Outcome.PROVED, f"{ON_H200}: 10 cases; now 60 s"),
        ),
        (
            trial(TrialStatus.TIMEOUT, detail="60 s"),
            {"changed": ("a.py", "b.py")},
            (*UNDECIDED, "60 s; the recorded proof is stale, changed: a.py, b.py"),
        ),
    ],
)
def test_a_proof_that_timed_out_is_replaced_by_its_record(
    one: Trial, record: dict[str, Any] | None, expected: tuple[Status, Outcome, str]
) -> None:
    records = {("F", PROOFS): recorded(**record)} if record is not None else {}
    results = replace(evidence(one, judged(mutant="auto")), drawn_mutants={"F": 1}, recorded=records)
    assert judgement(decide(replace(contract(), harnesses=(PROOF,)), results, Selection())) == expected


SEARCH = trial(TrialStatus.REFUTED, counterexample=replace(FOUND, shrunk=True), valid=7)


@pytest.mark.parametrize(
    ("replay", "status", "detail"),
    [
        (
            trial(),
            TrialStatus.ERROR,
            "its counterexample does not reproduce: the claim holds on it in a fresh process",
        ),
        (
            trial(TrialStatus.TIMEOUT, detail="60 s"),
            TrialStatus.TIMEOUT,
            "its counterexample could not be replayed: 60 s",
        ),
        (trial(TrialStatus.RAISED, detail="d", counterexample=replace(FOUND, error="E")), TrialStatus.RAISED, "d"),
    ],
    ids=["holds", "timeout", "raises"],
)
def test_a_refutation_counts_only_if_a_fresh_worker_confirms_it(
    replay: Trial, status: TrialStatus, detail: str
) -> None:
    shown = SEARCH.counterexample if replay.counterexample is None else replace(replay.counterexample, shrunk=True)
    assert corrected_by_replay(SEARCH, replay) == replace(SEARCH, status=status, detail=detail, counterexample=shown)
    ends = [trial(status, counterexample=counterexample) for status in TrialStatus for counterexample in (None, FOUND)]
    replayed = {end.status for end in ends if must_replay(end)}
    assert replayed == {*ENDED_EARLY, TrialStatus.REFUTED, TrialStatus.RAISED}
    assert not any(must_replay(end) for end in ends if end.counterexample is None)


@pytest.mark.parametrize("kills", [("m", "n"), ("n", "m")])
def test_surviving_mutant_decides_before_cancelled_ones(kills: tuple[str, str]) -> None:
    tried = judged(TrialStatus.HELD), judged(TrialStatus.CANCELLED, mutant="n", detail="stopped")
    verdict = decided(trial(), *tried, claims=(falsifier(kills=kills),))
    assert judgement(verdict) == (*VACUOUS, f"{SURVIVOR} (the mutated code was never reached)")
    assert verdict.untried == 1


@pytest.mark.parametrize(
    ("examples", "asked", "source", "fewer"),
    [(5, 5, None, True), (None, 100, None, False), (100, 100, None, False), (1, 1, "once", False)],
)
def test_claim_on_fewer_examples_is_marked(examples: int | None, asked: int, source: str | None, fewer: bool) -> None:
    claims = (falsifier(run=source),)
    verdict = decided(trial(asked=asked, valid=asked), judged(), claims=claims, examples=examples)
    assert (verdict.status, verdict.results[0].fewer) == (Status.PASS, fewer)
    assert not decided(trial(TrialStatus.REFUTED, asked=asked), examples=examples).results[0].fewer


def test_nothing_measured_is_not_a_pass() -> None:
    assert judgement(decided()) == (*UNDECIDED, "nothing was measured")
    assert decided(claims=()).status is Status.UNDECIDED
    assert judgement(decided(trial(TrialStatus.NOT_CLAIMED, detail="d"))) == (
        Status.UNDECIDED,
        Outcome.NOT_CLAIMED,
        "d",
    )
    excused = decided(not_claimed={"F": "why"})
    assert (judgement(excused), excused.claimed_mutants) == (
        (Status.UNDECIDED, Outcome.NOT_CLAIMED, "why"),
        frozenset(),
    )
    assert judgement(decided(*HELD, claims=(falsifier(test=None),))) == (*UNDECIDED, "not bound: its test is prose")
    (lost,) = decided(gate=Gate(falsifiers=frozenset())).results
    assert (lost.required, lost.outcome) == (False, Outcome.UNDECIDED)
    (replayed,) = decided(trial(), gate=Gate(falsifiers=frozenset()), replay=True).results
    assert (replayed.required, replayed.reason) == (True, "the replayed example holds now; no other example was tried")
    (early,) = decided(trial(TrialStatus.TIMEOUT, current_arguments=FOUND)).results
    assert (early.counterexample, early.example) == (None, FOUND)
    untried = decided(*HELD, claims=(falsifier(kills=("m", "n")),))
    assert judgement(untried) == (*UNDECIDED, "the mutant 'n' was not judged")


@pytest.mark.parametrize("kills", [("m",), ()])
@pytest.mark.parametrize("trials", [(), (trial(),)])
def test_interrupt_is_the_reason_for_missing_trials(trials: tuple[Trial, ...], kills: tuple[str, ...]) -> None:
    evidence_ = replace(evidence(*trials), interrupted=True)
    assert judgement(decide(contract(falsifier(kills=kills)), evidence_, Selection())) == (
        *UNDECIDED,
        "not run: interrupted",
    )


@pytest.mark.parametrize("severity", Severity)
def test_finding_fails_a_passing_contract_unless_it_is_a_notice(severity: Severity) -> None:
    finding = Finding(code="PV131", severity=severity, location=HERE, message="m")
    status = Status.PASS if severity is Severity.NOTICE else Status.FAIL
    assert decide(contract(falsifier()), evidence(*HELD), Selection(), (finding,)).status is status


@pytest.mark.parametrize("killed", [None, 0, 1])
def test_an_attack_whose_equation_has_no_mutant_needs_an_automatic_one(killed: int | None) -> None:
    """One that kills one of several needs no other."""
    (verdict,) = report_of_equation(
        None if killed is None else EquationMutants(killed=killed, total=3 * killed)
    ).contracts
    assert judgement(verdict) == (PASSED if killed else (*UNDECIDED, "no generated mutant was judged"))
    (verdict,) = report_of_equation(EquationMutants(killed=0, total=1)).contracts
    assert judgement(verdict) == (*VACUOUS, "it kills none of 1 mutants of its equation")


CUDA = falsifier(devices=("cpu", "cuda"))


@pytest.mark.parametrize(
    "asked", [{"gate": Gate(fresh=frozenset({"cuda"}))}, {"require": frozenset({"cuda"})}], ids=["gate", "require"]
)
@pytest.mark.parametrize(
    ("records", "status", "reason"),
    [
        ((), Status.UNDECIDED, "not measured on cuda"),
        ((recorded(changed=("tiny.py", "b.py")),), Status.UNDECIDED, "stale, changed: tiny.py, b.py"),
        ((recorded(),), Status.PASS, ON_H200),
        ((recorded(TrialStatus.REFUTED),), Status.FAIL, ON_H200),
        ((recorded(TrialStatus.ERROR, detail="KeyError"),), Status.FAIL, f"KeyError; {ON_H200}"),
        ((recorded(reached=False),), Status.FAIL, f"the subject was never reached: no function of it ran; {ON_H200}"),
    ],
)
def test_record_decides_the_result_of_a_required_device(
    asked: dict[str, Any], records: Any, status: Status, reason: str
) -> None:
    verdict = decided(*HELD, claims=(CUDA,), recorded=records, **asked)
    assert (verdict.status, verdict.results[1].reason, verdict.results[1].required) == (status, reason, True)
    gate = Gate(falsifiers=frozenset({"G"}), fresh=frozenset({"cuda"}))
    assert not any(result.required for result in decided(*HELD, claims=(CUDA,), recorded=records, gate=gate).results)


@pytest.mark.parametrize("changed", [(), ("tiny.py",)])
@pytest.mark.parametrize("status", [TrialStatus.HELD, TrialStatus.SKIPPED, TrialStatus.REFUTED])
def test_device_that_is_not_required_fails_only_if_a_valid_record_refutes(
    status: TrialStatus, changed: tuple[str, ...]
) -> None:
    verdict = decided(*HELD, claims=(CUDA,), recorded=(recorded(status, changed=changed),))
    fails = status is TrialStatus.REFUTED and not changed
    assert (verdict.status, verdict.results[1].required) == (Status.FAIL if fails else Status.PASS, False)
    assert decided(*HELD, claims=(CUDA,)).status is Status.PASS


def test_record_of_a_requested_device_is_ignored() -> None:
    refuted = (recorded(TrialStatus.REFUTED),)
    assert judgement(decided(trial(device="cuda"), claims=(CUDA,), recorded=refuted, devices=("cuda",))) == PASSED
    evidence_ = evidence(recorded=(recorded(),), unavailable={"cuda": "torch sees no CUDA device"})
    verdict = decide(contract(CUDA), evidence_, Selection(devices=("cuda",)))
    assert judgement(verdict) == (*UNDECIDED, "torch sees no CUDA device")
    assert verdict.claimed_mutants == frozenset()
