"""A comparison has the exit code of the contract's own subject, unless a peer breaks or `--strict` is given."""

from dataclasses import replace

import pytest

from pv.contract.finding import Finding, Severity
from pv.engines.trial import TrialStatus
from pv.report.matrix import render
from pv.results.comparison import Column, Comparison
from pv.results.outcome import Outcome
from tests.report.handmade import PLAIN
from tests.results.handmade import BOTH, FOUND, HERE, contract, decided, falsifier, judged, trial

STATUS = {
    "held": TrialStatus.HELD,
    "proved": TrialStatus.HELD,
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
    if state == "proved":
        verdict = replace(verdict, results=tuple(replace(r, outcome=Outcome.PROVED) for r in verdict.results))
    refusals = PLAIN.findings if state == "refused" else ()
    return Column(name=state, target=state, own=is_own, report=replace(PLAIN, contracts=(verdict,), findings=refusals))


@pytest.mark.parametrize(
    ("subject", "peer", "code"),
    [
        ("held", "held", 0),
        ("proved", "proved", 0),
        ("held", "refuted", 0),
        ("held", "skipped", 0),
        ("held", "missing", 0),
        ("held", "broken", 1),
        ("held", "linted", 1),
        ("held", "refused", 3),
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


def test_a_comparison_has_the_claims_findings_and_notes_of_every_subject() -> None:
    columns = []
    for id_ in "FG":
        tried = decided(trial(id_=id_), judged(id_=id_), claims=BOTH, falsifiers=frozenset({id_}))
        findings = (replace(LINTED, message=f"finding {id_}"),)
        report = replace(PLAIN, contracts=(tried,), findings=findings, notes=(f"note {id_}",), seconds=1.5)
        columns.append(Column(name=id_, target=id_, report=report))
    compared = Comparison(contract=contract(*BOTH), columns=tuple(columns))
    assert [claim.id for claim in compared.rows] == ["F", "G"]
    for form in ("text", "markdown"):
        shown = render(compared, form)
        assert all(f"{what} {id_}" in shown for what in ("finding", "note") for id_ in "FG") and ", 3.0 s; " in shown
