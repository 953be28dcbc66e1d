"""The results and mutants that a gate requires, the requirements that a contract does not meet, and the exit code."""

from dataclasses import replace

import pytest

from pv.contract.finding import Finding, Severity
from pv.contract.model import Gate
from pv.engines.trial import TrialStatus
from pv.report.contract_line import sentence
from pv.results import requirements
from pv.results.evidence import MutationScore
from pv.results.outcome import Outcome, Selection
from pv.results.verdict import ContractVerdict, Report, Shard, Status, decide
from tests.report.handmade import PLAIN
from tests.results.handmade import BOTH, HELD, HERE, contract, decided, evidence, falsifier, judged, trial, two

WORST = {
    (TrialStatus.HELD, TrialStatus.HELD): Status.PASS,
    (TrialStatus.HELD, TrialStatus.SKIPPED): Status.UNDECIDED,
    (TrialStatus.HELD, TrialStatus.REFUTED): Status.FAIL,
    (TrialStatus.SKIPPED, TrialStatus.REFUTED): Status.FAIL,
    (TrialStatus.SKIPPED, TrialStatus.NO_EXAMPLES): Status.FAIL,
}


@pytest.mark.parametrize(("first", "second"), WORST)
def test_the_worst_required_result_decides(first: TrialStatus, second: TrialStatus) -> None:
    assert two(first, second).status is two(second, first).status is WORST[first, second]


@pytest.mark.parametrize(
    ("second", "required", "status"),
    [
        *((second, {"F"}, Status.PASS) for second in (TrialStatus.HELD, TrialStatus.SKIPPED, TrialStatus.ERROR)),
        (TrialStatus.REFUTED, {"F"}, Status.FAIL),
        (TrialStatus.HELD, set(), Status.UNDECIDED),  # a gate that requires nothing is never passed
    ],
)
def test_falsifier_outside_the_gate_counts_only_if_it_refutes(
    second: TrialStatus, required: set[str], status: Status
) -> None:
    verdict = two(TrialStatus.HELD, second, gate=Gate(falsifiers=frozenset(required)))
    assert verdict.status is status
    assert [result.required for result in verdict.results] == [bool(required), False]


def test_a_mutant_outside_the_gate_may_survive() -> None:
    held = (*HELD, judged(TrialStatus.HELD, mutant="n"))
    claims = (falsifier(kills=("m", "n")),)
    gated = decided(*held, claims=claims, gate=Gate(mutants=frozenset({"m"})))
    assert gated.status is Status.PASS
    assert (gated.killed, gated.claimed_mutants) == (frozenset({"m"}), frozenset({"m", "n"}))
    cancelled = judged(TrialStatus.CANCELLED, mutant="n")
    assert decided(*HELD, cancelled, claims=claims, gate=Gate(mutants=frozenset({"m"}))).status is Status.PASS
    assert decided(*HELD, claims=claims, mutants=False).claimed_mutants == frozenset()
    required = decided(*held, claims=claims)
    assert required.status is Status.FAIL
    assert [verdict.results[0].waived for verdict in (gated, required)] == [("n",), ()]


@pytest.mark.parametrize("gate", [Gate(), Gate(mutants=frozenset()), Gate(mutants=frozenset({"m"}))])
def test_list_of_mutants_in_the_gate_does_not_waive_generated_mutants(gate: Gate) -> None:
    survived = trial(TrialStatus.HELD, mutant="a")
    evidence_ = replace(evidence(trial(), survived), drawn_mutants={"F": 1})
    verdict = decide(contract(falsifier(kills=()), gate=gate), evidence_, Selection())
    assert [result.outcome for result in verdict.results] == [Outcome.VACUOUS]
    assert verdict.status is Status.FAIL


def test_a_mutant_counts_as_killed_if_every_falsifier_that_claims_it_kills_it() -> None:
    verdict = decided(*HELD, trial(id_="G"), judged(TrialStatus.HELD, "G"), claims=BOTH)
    assert (verdict.killed, verdict.claimed_mutants) == (frozenset(), frozenset({"m"}))
    generated = decided(trial(), judged(mutant="drawn"), claims=(falsifier(kills=()),))
    assert (generated.status, generated.killed) == (Status.PASS, frozenset()), "generated mutants are not counted"


def test_selection_is_partial_and_counts_only_selected_claims() -> None:
    verdict = two(TrialStatus.HELD, TrialStatus.REFUTED, falsifiers=frozenset({"F"}))
    assert (verdict.status, verdict.partial, verdict.total("cpu")) == (Status.PASS, True, 1)
    counts = [
        verdict.count("cpu", Outcome.HELD),
        verdict.count("cpu", Outcome.ERROR),
        verdict.count("cuda", Outcome.HELD),
    ]
    assert counts == [1, 0, 0]


@pytest.mark.parametrize("names", [None, "FG", "F"])
def test_score_is_not_required_if_a_claim_is_not_selected(names: str | None) -> None:
    selected = None if names is None else frozenset(names)
    verdict = two(TrialStatus.HELD, TrialStatus.HELD, gate=Gate(mutation_score=0.9), falsifiers=selected)
    assert verdict.status is (Status.PASS if names == "F" else Status.UNDECIDED)
    assert decided(trial(), gate=Gate(mutation_score=0.9), replay=True).status is Status.PASS


SCORE = MutationScore(total=10, judged=10, killed=10, sampled=10)


@pytest.mark.parametrize(
    ("score", "status", "reason"),
    [
        (None, Status.UNDECIDED, "none is recorded"),
        (replace(SCORE, killed=5), Status.FAIL, "the recorded score is 50 %"),
        (replace(SCORE, killed=0), Status.FAIL, "the recorded score is 0 %"),
        (replace(SCORE, judged=0, killed=0), Status.UNDECIDED, "none is recorded"),
        (replace(SCORE, changed=("a.py",)), Status.UNDECIDED, "the recorded score is stale"),
        (replace(SCORE, sampled=3), Status.UNDECIDED, "the recorded score is of a sample"),
    ],
)
def test_a_score_below_the_gate_is_a_reason(score: MutationScore | None, status: Status, reason: str) -> None:
    evidence_ = replace(evidence(*HELD), score=score)
    verdict = decide(contract(falsifier(), gate=Gate(mutation_score=0.9)), evidence_, Selection())
    assert verdict.status is status
    assert requirements.unmet_requirements(verdict) == (f"the gate requires a mutation score of 90 %, {reason}",)
    enough = decide(verdict.contract, replace(evidence_, score=replace(SCORE, killed=9)), Selection())
    assert (enough.status, requirements.unmet_requirements(enough)) == (Status.PASS, ())
    refuted = replace(evidence(trial(TrialStatus.REFUTED)), score=replace(SCORE, killed=9))
    assert requirements.unmet_requirements(decide(verdict.contract, refuted, Selection())) == ("falsified: F on cpu",)
    part = two(TrialStatus.REFUTED, TrialStatus.HELD, falsifiers=frozenset({"F"}), gate=Gate(mutation_score=0.9))
    assert requirements.unmet_requirements(part) == ("falsified: F on cpu",)


def test_every_reason_is_listed_once_worst_first() -> None:
    finding = Finding(code="PV101", severity=Severity.ERROR, location=HERE, message="m")
    linted = (finding, finding, replace(finding, severity=Severity.NOTICE))
    ids = {"A": TrialStatus.SKIPPED, "B": TrialStatus.REFUTED, "C": TrialStatus.ERROR, "D": TrialStatus.REFUTED}
    claims = [falsifier(id_, options={"observed": id_} if id_ == "D" else {}) for id_ in ids]
    gate = Gate(falsifiers=frozenset("ABD"), mutation_score=0.9)
    trials = evidence(*(trial(status, id_) for id_, status in ids.items()))
    verdict = decide(contract(*claims, gate=gate), trials, Selection(require=frozenset({"mps", "cuda", "xpu"})), linted)
    of_contract = ("the gate requires a mutation score of 90 %, none is recorded",)
    of_contract += tuple(f"nothing claimed on {device}" for device in ("cuda", "mps", "xpu"))
    of_results = ("2 lint errors", "falsified: B on cpu, D", "undecided: A on cpu")
    assert requirements.unmet_requirements(verdict) == (*of_results, *of_contract)
    assert (requirements.unmet_by_contract(verdict), verdict.findings) == (of_contract, linted)
    nothing = decided(*HELD, gate=Gate(falsifiers=frozenset()))
    assert requirements.unmet_by_contract(nothing) == ("nothing that the gate requires was measured",)


@pytest.mark.parametrize("names", ["F", "FG"])
@pytest.mark.parametrize("divided", [True, False])
def test_a_shard_without_a_required_claim_passes_because_another_one_tries_them(names: str, divided: bool) -> None:
    held = (*HELD, trial(id_="G"), judged(id_="G"))
    gate = Gate(falsifiers=frozenset({"H"}))
    verdict = decided(*held, claims=BOTH, gate=gate, falsifiers=frozenset(names), divided=divided)
    assert verdict.status is (Status.PASS if divided and names == "F" else Status.UNDECIDED)


def test_a_required_device_without_a_claim_and_an_absent_contract_are_reasons() -> None:
    verdict = decided(*HELD, require=frozenset({"cuda"}))
    assert (verdict.status, verdict.unclaimed_devices) == (Status.UNDECIDED, ("cuda",))
    assert requirements.unmet_requirements(verdict) == ("nothing claimed on cuda",)
    assert "nothing claimed on cuda" in sentence(verdict)
    assert decided(*HELD, require=frozenset({"cuda"}), gate=Gate(devices=("cpu",))).status is Status.PASS
    absent = replace(verdict, results=(), unclaimed_devices=(), absent="in none of the reports")
    assert requirements.unmet_requirements(absent) == ("in none of the reports",)


SEVERITIES = {3: Severity.REFUSAL, 1: Severity.ERROR, 0: Severity.NOTICE}


def report(*statuses: Status, findings: tuple[int, ...] = ()) -> Report:
    verdicts = tuple(ContractVerdict(contract=contract(), status=status, results=()) for status in statuses)
    all_findings = tuple(
        Finding(code="PV001", severity=SEVERITIES[code], location=HERE, message="m") for code in findings
    )
    return replace(PLAIN, contracts=verdicts, findings=all_findings)


CODE_OF = {Status.PASS: 0, Status.UNDECIDED: 2, Status.FAIL: 1}
ORDER = [3, 1, 2, 0]


@pytest.mark.parametrize("first", list(Status))
@pytest.mark.parametrize("second", list(Status))
@pytest.mark.parametrize("finding", [None, *SEVERITIES])
def test_exit_code_is_the_worst_of_contracts_and_findings(first: Status, second: Status, finding: int | None) -> None:
    codes = [CODE_OF[first], CODE_OF[second], *([finding] if finding else [])]
    severities = () if finding is None else (finding,)
    assert report(first, second, findings=severities).exit_code == min(codes, key=ORDER.index)


@pytest.mark.parametrize(("findings", "code"), [((), 2), ((0,), 2), ((1,), 1), ((3,), 3), ((0, 1, 3), 3)])
def test_report_without_a_contract_does_not_pass(findings: tuple[int, ...], code: int) -> None:
    assert report(findings=findings).exit_code == code
    assert replace(report(Status.PASS), missing=(Shard(1, 2),)).exit_code == 2
    assert replace(report(Status.PASS), unmatched=("--only X",)).exit_code == 2
