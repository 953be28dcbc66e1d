"""The clauses of a contract are rebuilt as they were."""

from dataclasses import replace

from pv.contract.claims import Harness
from pv.contract.mutants import Swap
from pv.contract.names import Target
from pv.report import json_
from pv.results import saved_contract
from tests.report.equation_reports import report as of_equation
from tests.report.handmade import MUTANT, PLAIN
from tests.results.test_saved import full


def test_claims_mutants_scope_and_gate_are_rebuilt() -> None:
    before = full().contracts[0].contract
    swap = replace(MUTANT, id="swapped", change=Swap(object=Target("tiny", "a"), replacement=Target("faults", "b")))
    before = replace(before, mutants=(MUTANT, swap))
    report = replace(PLAIN, contracts=(replace(full().contracts[0], contract=before),))
    after = saved_contract.contract(json_.data(report)["contracts"][0], {})
    assert isinstance(after.harnesses[0], Harness)
    for name in ("id", "version", "strict", "falsifiers", "harnesses", "mutants"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.mutation_scope.names, after.mutation_scope.judge_ids) == (("tiny",), ("d",))
    assert replace(after.gate, location=None) == before.gate


def test_a_tolerance_is_that_of_its_equation() -> None:
    data = json_.data(of_equation(None, tolerance={"relative": 0.5, "why": "w"}))["contracts"][0]
    (equation,) = saved_contract.contract(data, {}).equations
    assert (equation.name, dict(equation.executable)) == ("double", {"tolerance": {"relative": 0.5, "why": "w"}})
