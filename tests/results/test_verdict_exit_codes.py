"""The exit code is the worst of all verdicts and findings."""

from typing import Any

import pytest

from pv.contract.finding import Finding, Severity
from pv.results.verdict import ContractVerdict, Report, Status
from tests.results.handmade import HERE, contract

SEVERITIES = {3: Severity.REFUSAL, 1: Severity.ERROR, 0: Severity.NOTICE}


def report(*statuses: Status, findings: tuple[int, ...] = (), **fields: Any) -> Report:
    verdicts = tuple(ContractVerdict(contract=contract(), status=status, results=()) for status in statuses)
    found = tuple(Finding(code="PV001", severity=SEVERITIES[code], location=HERE, message="m") for code in findings)
    return Report(
        contracts=verdicts,
        findings=found,
        devices={},
        seed=0,
        seconds=0.0,
        started="",
        version="",
        python="",
        hypothesis="",
        **fields,
    )


CODE_OF = {Status.PASS: 0, Status.UNDECIDED: 2, Status.FAIL: 1}
ORDER = [3, 1, 2, 0]


@pytest.mark.parametrize("first", list(Status))
@pytest.mark.parametrize("second", list(Status))
@pytest.mark.parametrize("finding", [None, *SEVERITIES])
def test_the_exit_code_is_the_worst_of_all(first: Status, second: Status, finding: int | None) -> None:
    codes = [CODE_OF[first], CODE_OF[second], *([finding] if finding else [])]
    found = () if finding is None else (finding,)
    assert report(first, second, findings=found).exit_code == min(codes, key=ORDER.index)


@pytest.mark.parametrize(("findings", "code"), [((), 2), ((0,), 2), ((1,), 1), ((3,), 3), ((0, 1, 3), 3)])
def test_without_a_contract_nothing_passes(findings: tuple[int, ...], code: int) -> None:
    assert report(findings=findings).exit_code == code


def test_an_interruption_is_its_own_exit_code() -> None:
    assert report(Status.PASS, interrupted=True).exit_code == 130
