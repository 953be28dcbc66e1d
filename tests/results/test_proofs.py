"""A counterexample of a proof is tried again in a fresh worker; a worker that was killed names the contract's limit."""

from pathlib import Path

import pytest

from pv.contract.claims import Harness
from pv.contract.finding import Location
from pv.contract.names import Binding
from pv.results.proofs import refutes, replayed, stands, within
from pv.results.trial import TrialStatus
from tests.results.handmade import FOUND, falsifier, trial

HARNESS = Harness(
    id="H",
    rule="r",
    if_fails="i",
    location=Location(Path("c.yaml")),
    test=Binding("prove.py", "prove"),
    bounds={"n": "0..8"},
    limit_s=4.0,
)


def test_killed_worker_names_the_limit_of_the_contract() -> None:
    found = within(HARNESS, trial(TrialStatus.TIMEOUT, stopped=True, detail="stopped at 10.0 s"))
    assert found.detail.startswith("no answer within its limit of 4 s")
    own = trial(TrialStatus.TIMEOUT, detail="exhaustive: at its limit of 4 s")
    assert within(HARNESS, own) is own


@pytest.mark.parametrize("status", [TrialStatus.REFUTED, TrialStatus.TIMEOUT, TrialStatus.CRASHED])
def test_only_a_counterexample_is_tried_again(status: TrialStatus) -> None:
    assert refutes(trial(status, counterexample=FOUND))
    assert not refutes(trial(status))
    assert not refutes(trial(TrialStatus.HELD, counterexample=FOUND))


def test_counterexample_that_holds_in_a_fresh_process_is_an_error() -> None:
    first = trial(TrialStatus.REFUTED, counterexample=FOUND)
    again = replayed(first, trial(TrialStatus.HELD))
    assert (again.status, again.counterexample) == (TrialStatus.ERROR, FOUND)
    assert "does not reproduce" in again.detail


def test_counterexample_that_fails_again_keeps_the_second_error() -> None:
    first = trial(TrialStatus.REFUTED, counterexample=FOUND, valid=7)
    again = replayed(first, trial(TrialStatus.RAISED, counterexample=FOUND, detail="ValueError"))
    assert (again.status, again.detail, again.valid) == (TrialStatus.RAISED, "ValueError", 7)


def test_worker_that_crashes_on_replay_is_reported_as_it_ended() -> None:
    again = replayed(trial(TrialStatus.REFUTED, counterexample=FOUND), trial(TrialStatus.CRASHED, detail="SIGSEGV"))
    assert (again.status, again.detail) == (TrialStatus.CRASHED, "its counterexample could not be replayed: SIGSEGV")


def test_mutants_are_tried_where_a_claim_held_or_a_recorded_proof_may_replace_it() -> None:
    assert stands(falsifier(), trial(TrialStatus.HELD))
    assert not stands(falsifier(), trial(TrialStatus.TIMEOUT))
    assert stands(HARNESS, trial(TrialStatus.TIMEOUT))
