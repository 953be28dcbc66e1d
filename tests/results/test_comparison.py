"""A comparison has the exit code of the contract's own subject, unless a peer breaks or `--strict` is given."""

from dataclasses import replace

import pytest

from pv.contract.finding import Finding, Severity
from pv.engines.trial import TrialStatus
from pv.report.matrix import render
from pv.results.comparison import Column, Comparison
from tests.report.handmade import PLAIN
from tests.results.handmade import FOUND, HERE, contract, decided, falsifier, judged, trial

STATUS = {
    "held": TrialStatus.HELD,
    "refuted": TrialStatus.REFUTED,
    "broken": TrialStatus.ERROR,
    "skipped": TrialStatus.SKIPPED,
    "unclaimed": TrialStatus.NOT_CLAIMED,
}
LINTED = Finding(code="PV101", severity=Severity.ERROR, location=HERE, message="m")


def column(state: str, *, is_own: bool = False) -> Column:
    if state == "missing":
        return Column(name=state, target=state, own=is_own, missing="not installed")
    verdict = decided(trial(STATUS.get(state, TrialStatus.HELD), counterexample=FOUND, detail=state), judged())
    verdict = replace(verdict, findings=(LINTED,) if state == "linted" else ())
    return Column(name=state, target=state, own=is_own, report=replace(PLAIN, contracts=(verdict,), findings=()))


@pytest.mark.parametrize(
    ("subject", "peer", "code"),
    [
        ("held", "held", 0),
        ("held", "refuted", 0),
        ("held", "skipped", 0),
        ("held", "missing", 0),
        ("held", "broken", 1),
        ("held", "linted", 1),
        ("refuted", "held", 1),
        ("skipped", "held", 2),
        ("missing", "held", 2),
        ("unclaimed", "unclaimed", 2),
    ],
)
def test_the_own_subject_and_a_broken_peer_decide_the_exit_code(subject: str, peer: str, code: int) -> None:
    columns = (column(subject, is_own=True), column(peer))
    compared = Comparison(contract=contract(falsifier()), columns=columns)
    assert compared.exit_code == code
    assert replace(compared, strict=True).exit_code == (1 if "refuted" in (subject, peer) else code)
    assert replace(compared, interrupted=True).exit_code == 130
    shown = [result.outcome.value for _, result in compared.failures()]
    assert len(shown) == sum(state in ("refuted", "broken") for state in (subject, peer))
    not_claimed = [line for line in render(compared).splitlines() if line.startswith("not claimed by")]
    assert not_claimed == [f"not claimed by {state}: F: {state}" for state in (subject, peer) if state == "unclaimed"]
