"""A counterexample of a proof is tried again in a fresh worker; a worker that was killed names the contract's limit."""

from pathlib import Path

from pv.contract.claims import Harness
from pv.contract.finding import Location
from pv.contract.names import Binding
from pv.results.proofs import replayed, within
from pv.results.trial import TrialStatus
from tests.results.handmade import FOUND, trial

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


def test_counterexample_that_holds_in_a_fresh_process_is_an_error() -> None:
    first = trial(TrialStatus.REFUTED, counterexample=FOUND)
    again = replayed(first, trial(TrialStatus.HELD))
    assert (again.status, again.counterexample) == (TrialStatus.ERROR, FOUND)
    assert "does not reproduce" in again.detail
