"""Which of several falsifiers and mutants count, by the gate and by what was selected."""

from dataclasses import replace

import pytest

from pv.contract.model import Gate
from pv.results.outcome import Outcome, Selection
from pv.results.trial import TrialStatus
from pv.results.verdict import Status, decide
from tests.results.handmade import BOTH, contract, evidence, falsifier, judged, trial, two


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (TrialStatus.HELD, TrialStatus.HELD, Status.PASS),
        (TrialStatus.HELD, TrialStatus.SKIPPED, Status.UNDECIDED),
        (TrialStatus.HELD, TrialStatus.REFUTED, Status.FAIL),
        (TrialStatus.SKIPPED, TrialStatus.REFUTED, Status.FAIL),
        (TrialStatus.SKIPPED, TrialStatus.ERROR, Status.FAIL),
        (TrialStatus.SKIPPED, TrialStatus.NO_EXAMPLES, Status.FAIL),
    ],
)
def test_the_worst_required_cell_decides(first: TrialStatus, second: TrialStatus, status: Status) -> None:
    for ends in ((first, second), (second, first)):
        assert decide(contract(*BOTH), two(*ends), Selection()).status is status


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (TrialStatus.HELD, Status.PASS),
        (TrialStatus.SKIPPED, Status.PASS),
        (TrialStatus.ERROR, Status.PASS),
        (TrialStatus.NO_EXAMPLES, Status.PASS),
        (TrialStatus.REFUTED, Status.FAIL),
        (TrialStatus.RAISED, Status.FAIL),
        (TrialStatus.TIMEOUT, Status.FAIL),
    ],
)
def test_a_falsifier_outside_the_gate_counts_only_when_it_refutes(second: TrialStatus, status: Status) -> None:
    verdict = decide(
        contract(*BOTH, gate=Gate(falsifiers=frozenset({"F"}))), two(TrialStatus.HELD, second), Selection()
    )
    assert verdict.status is status
    assert [result.required for result in verdict.results] == [True, False]


def test_a_gate_that_requires_nothing_is_never_passed() -> None:
    verdict = decide(
        contract(*BOTH, gate=Gate(falsifiers=frozenset())), two(TrialStatus.HELD, TrialStatus.HELD), Selection()
    )
    assert verdict.status is Status.UNDECIDED


def test_a_mutant_outside_the_gate_may_survive() -> None:
    held = evidence(trial(), judged(), judged(TrialStatus.HELD, mutant="n"))
    claim = falsifier(kills=("m", "n"))
    gated = decide(contract(claim, gate=Gate(mutants=frozenset({"m"}))), held, Selection())
    assert gated.status is Status.PASS
    assert (gated.killed, gated.claimed) == (frozenset({"m"}), frozenset({"m", "n"}))
    assert decide(contract(claim), held, Selection()).status is Status.FAIL


@pytest.mark.parametrize("gate", [Gate(), Gate(mutants=frozenset()), Gate(mutants=frozenset({"m"}))])
def test_a_list_of_mutants_does_not_waive_the_automatic_ones(gate: Gate) -> None:
    survived = trial(TrialStatus.HELD, mutant="a")
    found = replace(evidence(trial(), survived), automatic={"F": 1})
    verdict = decide(contract(falsifier(kills=()), gate=gate), found, Selection())
    assert [result.outcome for result in verdict.results] == [Outcome.VACUOUS]
    assert verdict.status is Status.FAIL


def test_a_mutant_counts_as_killed_if_every_falsifier_that_claims_it_kills_it() -> None:
    found = evidence(trial(), judged(), trial(id_="G"), judged(TrialStatus.HELD, "G"))
    verdict = decide(contract(*BOTH), found, Selection())
    assert (verdict.killed, verdict.claimed) == (frozenset(), frozenset({"m"}))


def test_a_selection_is_partial_and_counts_only_itself() -> None:
    verdict = decide(
        contract(*BOTH), two(TrialStatus.HELD, TrialStatus.REFUTED), Selection(falsifiers=frozenset({"F"}))
    )
    assert (verdict.status, verdict.partial, verdict.total("cpu")) == (Status.PASS, True, 1)
    assert verdict.count("cpu", Outcome.HELD, Outcome.PROVED) == 1


@pytest.mark.parametrize(
    ("selected", "status"), [(None, Status.UNDECIDED), ({"F", "G"}, Status.UNDECIDED), ({"F"}, Status.PASS)]
)
def test_the_gate_on_the_score_is_left_out_only_with_a_claim(selected: set[str] | None, status: Status) -> None:
    names = None if selected is None else frozenset(selected)
    gated = contract(*BOTH, gate=Gate(mutation_score=0.9))
    assert decide(gated, two(TrialStatus.HELD, TrialStatus.HELD), Selection(falsifiers=names)).status is status
