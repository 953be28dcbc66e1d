"""The clauses of a contract as JSON."""

from dataclasses import replace

from pv.contract.model import Gate
from pv.contract.mutants import Swap
from pv.contract.names import Target
from pv.report import json_claims
from tests.report.equation_reports import report
from tests.report.handmade import MUTANT, PLAIN


def test_a_claim_names_its_kind_and_its_binding() -> None:
    data = json_claims.claim(PLAIN.contracts[0].contract.falsifiers[0])
    assert (data["kind"], data["test"], data["kills"], data["devices"]) == (
        *("property", "falsifiers/falsify_tiny.py::falsify_double"),
        *(["tripled"], ["cpu", "cuda"]),
    )


def test_a_mutant_is_an_edit_or_a_swap() -> None:
    swap = Swap(object=Target("tiny", "double"), replacement=Target("faults", "triple"))
    assert json_claims.mutant(MUTANT)["change"] == {"function": "tiny:double", "find": "2", "replace": "3"}
    assert json_claims.mutant(replace(MUTANT, change=swap))["change"] == {
        "object": "tiny:double",
        "replacement": "faults:triple",
    }


def test_a_gate_that_requires_all_is_null_and_one_that_requires_none_is_empty() -> None:
    assert json_claims.gate(Gate())["falsifiers"] is None
    assert json_claims.gate(Gate(falsifiers=frozenset()))["falsifiers"] == []


def test_only_tolerances_of_tried_equations_are_listed() -> None:
    given = report(None, tolerance={"relative": 0.5, "why": "w"}).contracts[0]
    assert list(json_claims.tolerances(given)) == [{"equation": "double", "relative": 0.5, "why": "w"}]
    assert list(json_claims.tolerances(replace(given, results=()))) == []
