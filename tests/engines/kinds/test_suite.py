"""Claims of a suite: what a worker gets, and what shows that they can fail."""

from dataclasses import replace
from pathlib import Path

from pv.contract.load import load_file
from pv.contract.names import Target
from pv.contract.suites import applied, joined, suites
from pv.engines.code import Code
from pv.engines.kind import How
from pv.engines.kinds import kind_of
from pv.engines.kinds.suite import SuiteKind
from pv.source.project import find_project

PROJECT = Path(__file__).parents[2] / "projects" / "trainers"
SUITE, _ = load_file(suites()["training-loop"])
assert SUITE is not None
(CLAIM,) = (each for each in SUITE.falsifiers if each.id == "TL-DATA-002")


def test_code_of_a_suite_is_found_from_any_project() -> None:
    code = Code(find_project(PROJECT), Target("trainers", "Right"))
    payload = SuiteKind().payload(code, SUITE, CLAIM, How())
    assert payload.own.test.module == "pv.suites.training_loop.claims.data"
    assert (payload.bench.module, payload.bench.name) == ("pv.suites.training_loop.bench", "bench")
    assert list(payload.premises) == ["TL-DATA-001"]


def test_claim_of_a_contract_that_names_the_suite_keeps_its_own_id_for_the_adapter() -> None:
    contract = joined(replace(SUITE, id="mine", falsifiers=()), SUITE)
    (claim,) = (each for each in contract.falsifiers if each.id == "mine.TL-DATA-002")
    code = Code(find_project(PROJECT), Target("trainers", "Right"))
    payload = SuiteKind().payload(code, contract, claim, How())
    assert (payload.claim, list(payload.premises)) == ("TL-DATA-002", ["mine.TL-DATA-001"])


def test_mutants_judge_a_claim_on_the_suites_own_loop_only() -> None:
    assert kind_of(CLAIM).judged(CLAIM)
    assert not any(kind_of(each).judged(each) for each in applied(SUITE).falsifiers)
