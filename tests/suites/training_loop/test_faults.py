import inspect

from pv.contract.mutants import Swap
from pv.suites.training_loop import faults, plan_faults
from tests.suites.training_loop.planting import contract


def test_every_fault_is_a_mutant() -> None:
    used = {each.change.replacement.attribute for each in contract().mutants if isinstance(each.change, Swap)}
    found = [(module, *each) for module in (faults, plan_faults) for each in inspect.getmembers(module)]
    public = {name for module, name, each in found if getattr(each, "__module__", "") == module.__name__}
    assert {name for name in public if not name.startswith("_")} == used


def test_every_mutant_is_named_by_a_claim() -> None:
    killed = {mutant for claim in contract().falsifiers for mutant in claim.kills}
    assert {mutant.id for mutant in contract().mutants} == killed
