"""Real contracts in the field's existing format: they load, are linted with notices alone, and can never pass."""

from collections import Counter
from pathlib import Path

import pv
from pv.contract.finding import Severity
from pv.contract.load import load
from pv.report.contract_line import sentence
from pv.results.verdict import Status
from tests.support.projects import findings, write

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


PROSE = """\
metadata:
  version: 1.10
  description: d
  depends_on: [beside, missing]
  owner: ann
equations:
- {id: softmax, formula: " x "}
- {formula: y}
proof_obligations:
- {id: O, property: p, lean: {status: proved}}
- {statement: s, requires: [P], applies_to: all, lean: {status: wip}}
- {property: q, lean: {status: not-applicable}}
falsification_tests:
- {name: " r ", expected: " e ", fails_if: " i "}
- {id: T, rule: r}
kani_harnesses:
- {property: p, obligation: softmax}
- {id: K, obligation: Q}
enforcement:
  one: {check: contract_tests::T}
  two: {check: contract_tests::U}
verification_summary: {total_obligations: 4, l2_property_tested: 4, l3_kani_proved: 1, l4_lean_proved: x,
  l4_sorry_count: 1, l4_not_applicable: 2}
qa_gate: {id: G, name: g, pass_criteria: "2 falsification tests, or 3 falsification tests, 2 Kani harnesses"}
"""
NOTICES = """\
4:24 PV206 'depends_on' names 'missing', which is not a contract beside this file
5:3 PV201 unknown key 'owner' in 'metadata': pv does not read it
11:29 PV206 'requires' names 'P', which is not an obligation of this file
18:23 PV206 'obligation' names 'Q', which is not an obligation or equation of this file
21:16 PV206 'check' names 'U', which is not a falsification test of this file
22:43 PV205 'total_obligations' is 4; the file has 3
22:66 PV205 'l2_property_tested' is 4; the file has at most 3
22:104 PV205 'l4_lean_proved' is 'x'; expected a number
23:19 PV205 'l4_sorry_count' is 1; the file has 0
23:41 PV205 'l4_not_applicable' is 2; the file has at most 1
24:42 PV205 'pass_criteria' counts 3 falsification_tests; the file has 2
"""


def test_a_contract_in_prose_gets_names_and_a_notice_for_each_contradiction(tmp_path: Path) -> None:
    write(tmp_path, {"prose.yaml": PROSE, "beside.yaml": "", "pyproject.toml": "[tool.pv]\n"})
    (contract,) = load([tmp_path / "prose.yaml"]).contracts
    assert (contract.id, contract.version, contract.strict) == ("prose", "1.10", False)
    assert (contract.gate.id, contract.gate.name) == ("G", "g")
    assert [(entry.name, entry.formula) for entry in contract.equations] == [("softmax", "x"), ("equation_1", "y")]
    assert [(obligation.id, obligation.statement) for obligation in contract.obligations] == [
        *(("O", "p"), ("obligation-2", "s"), ("obligation-3", "q"))
    ]
    words = [(claim.id, claim.rule, claim.prediction, claim.if_fails) for claim in contract.claims]
    assert words == [("falsifier-1", "r", "e", "i"), ("T", "r", "", ""), ("harness-1", "p", "", ""), ("K", "", "", "")]
    problems = [f for f in findings(tmp_path, tmp_path / "prose.yaml") if f.code != "PV202"]
    shown = [f"{f.location.line}:{f.location.column} {f.code} {f.message}" for f in problems]
    assert shown == NOTICES.splitlines()
