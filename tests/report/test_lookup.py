"""Mutants and equations are found by name, for each contract its own."""

from dataclasses import replace

from pv.report import lookup
from tests.report.equation_reports import report
from tests.report.handmade import MUTANT, PLAIN


def test_each_contract_has_its_own_mutants_and_equations() -> None:
    contract = PLAIN.contracts[0].contract
    other = replace(contract, mutants=())
    assert lookup.mutants(contract) == {"tripled": MUTANT}
    assert lookup.mutants(other) == {}
    assert list(lookup.equations(report(None).contracts[0].contract)) == ["double"]
