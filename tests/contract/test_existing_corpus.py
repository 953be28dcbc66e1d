"""Real contracts in the field's existing format: they load, are linted with notices alone, and can never pass."""

from collections import Counter
from pathlib import Path

import pv
from pv.contract.finding import Severity
from pv.report.summary import sentence
from pv.results.verdict import Status
from tests.support.projects import findings

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
FALSIFIERS, HARNESSES = 521, 164
UNBOUND = FALSIFIERS + HARNESSES
UNREAD, DANGLING = 60, HARNESSES  # no harness names an obligation that exists


def test_lint_gives_the_corpus_notices_only() -> None:
    assert Counter((f.code, f.severity) for f in findings(ROOT, CORPUS)) == {
        ("PV201", Severity.NOTICE): UNREAD,
        ("PV202", Severity.NOTICE): UNBOUND,
        ("PV206", Severity.NOTICE): DANGLING,
    }


def test_a_contract_in_prose_cannot_pass() -> None:
    report = pv.validate([CORPUS])
    assert report.exit_code == 2
    assert {contract.status for contract in report.contracts} == {Status.UNDECIDED}
    assert sum(len(contract.results) for contract in report.contracts) == UNBOUND
    reasons = {result.reason for contract in report.contracts for result in contract.results}
    assert reasons == {"not bound: its test is prose"}
    (softmax,) = (entry for entry in report.contracts if entry.contract.location.path.stem == "softmax-kernel-v1")
    harnesses = len(softmax.contract.harnesses)
    assert f" and {harnesses} harnesses stated, 0 run: their tests are prose" in sentence(softmax) and harnesses > 0
