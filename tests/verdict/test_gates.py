"""Which of several falsifiers and mutants count, by the gate and by what was selected."""

import pytest

from pv.cells import Outcome, Selection
from pv.evidence import Ending
from pv.model import Gate
from pv.verdict import Status, decide
from tests.verdict.handmade import BOTH, contract, evidence, falsifier, judged, trial, two


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (Ending.HELD, Ending.HELD, Status.PASS),
        (Ending.HELD, Ending.SKIPPED, Status.UNDECIDED),
        (Ending.HELD, Ending.REFUTED, Status.FAIL),
        (Ending.SKIPPED, Ending.REFUTED, Status.FAIL),
        (Ending.SKIPPED, Ending.BROKEN, Status.FAIL),
        (Ending.SKIPPED, Ending.BARREN, Status.FAIL),
    ],
)
def test_the_worst_required_cell_decides(first: Ending, second: Ending, status: Status) -> None:
    for ends in ((first, second), (second, first)):
        assert decide(contract(*BOTH), two(*ends), Selection()).status is status


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (Ending.HELD, Status.PASS),
        (Ending.SKIPPED, Status.PASS),
        (Ending.BROKEN, Status.PASS),
        (Ending.BARREN, Status.PASS),
        (Ending.REFUTED, Status.FAIL),
        (Ending.RAISED, Status.FAIL),
        (Ending.TIME, Status.FAIL),
    ],
)
def test_a_falsifier_outside_the_gate_counts_only_when_it_refutes(second: Ending, status: Status) -> None:
    verdict = decide(contract(*BOTH, gate=Gate(falsifiers=frozenset({"F"}))), two(Ending.HELD, second), Selection())
    assert verdict.status is status
    assert [cell.required for cell in verdict.cells] == [True, False]


def test_a_gate_that_requires_nothing_is_never_passed() -> None:
    verdict = decide(contract(*BOTH, gate=Gate(falsifiers=frozenset())), two(Ending.HELD, Ending.HELD), Selection())
    assert verdict.status is Status.UNDECIDED


def test_a_mutant_outside_the_gate_may_survive() -> None:
    held = evidence(trial(), judged(), judged(Ending.HELD, mutant="n"))
    claim = falsifier(kills=("m", "n"))
    gated = decide(contract(claim, gate=Gate(mutants=frozenset({"m"}))), held, Selection())
    assert gated.status is Status.PASS
    assert (gated.killed, gated.claimed) == (frozenset({"m"}), frozenset({"m", "n"}))
    assert decide(contract(claim), held, Selection()).status is Status.FAIL


def test_a_mutant_counts_as_killed_if_every_falsifier_that_claims_it_kills_it() -> None:
    found = evidence(trial(), judged(), trial(id_="G"), judged(Ending.HELD, "G"))
    verdict = decide(contract(*BOTH), found, Selection())
    assert (verdict.killed, verdict.claimed) == (frozenset(), frozenset({"m"}))


def test_a_selection_is_partial_and_counts_only_itself() -> None:
    verdict = decide(contract(*BOTH), two(Ending.HELD, Ending.REFUTED), Selection(falsifiers=frozenset({"F"})))
    assert (verdict.status, verdict.partial, verdict.total("cpu")) == (Status.PASS, True, 1)
    assert verdict.count("cpu", Outcome.SURVIVED, Outcome.PROVED) == 1


def test_the_verdict_is_pure() -> None:
    arguments = (contract(*BOTH), two(Ending.HELD, Ending.SKIPPED), Selection())
    assert decide(*arguments) == decide(*arguments)
