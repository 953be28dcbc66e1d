"""The exit code of a comparison, and what its columns show."""

from dataclasses import replace

import pytest

from pv.contract.finding import Finding, Severity
from pv.results.comparison import Column, Comparison
from pv.results.outcome import Selection
from pv.results.trial import Evidence, Trial, TrialStatus
from pv.results.verdict import Report, decide
from tests.results.handmade import FOUND, HELD, HERE, contract, evidence, falsifier, trial

CONTRACT = contract(falsifier())
EMPTY = Report(
    contracts=(), findings=(), devices={}, seed=0, seconds=0.0, started="", version="", python="", hypothesis=""
)
REFUTED = (trial(TrialStatus.REFUTED, counterexample=FOUND),)


def column(name: str, found: Evidence, *, own: bool = False, findings: tuple[Finding, ...] = ()) -> Column:
    verdict = decide(CONTRACT, found, Selection(), findings)
    report = replace(EMPTY, contracts=(verdict,), findings=findings)
    return Column(name=name, target=name, own=own, report=report)


@pytest.mark.parametrize(
    ("own", "peer", "strict", "code"),
    [
        (HELD, HELD, False, 0),
        (HELD, REFUTED, False, 0),
        (HELD, REFUTED, True, 1),
        (REFUTED, HELD, False, 1),
        (HELD, (trial(TrialStatus.ERROR),), False, 1),
        ((), HELD, False, 2),
    ],
)
def test_exit_code_follows_the_own_subject_and_broken_results(
    own: tuple[Trial, ...], peer: tuple[Trial, ...], strict: bool, code: int
) -> None:
    columns = (column("own", evidence(*own), own=True), column("peer", evidence(*peer)))
    assert Comparison(contract=CONTRACT, columns=columns, strict=strict).exit_code == code
    assert Comparison(contract=CONTRACT, columns=columns, strict=strict, interrupted=True).exit_code == 130


def test_refused_subject_ends_with_3() -> None:
    refusal = Finding(code="PV010", severity=Severity.REFUSAL, location=HERE, message="unknown key 'x'")
    columns = (column("own", evidence(*HELD), own=True, findings=(refusal,)),)
    assert Comparison(contract=CONTRACT, columns=columns).exit_code == 3
