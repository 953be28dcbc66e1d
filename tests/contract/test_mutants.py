"""Mutants name the module that they change, and `mutated` the code that it contains."""

from pathlib import Path

import pytest

from pv.contract.finding import Location
from pv.contract.mutants import Edit, Mutant, Mutated, Swap
from pv.contract.names import Target

HERE = Location(Path("c.yaml"))


def test_module_of_a_mutant_is_that_of_its_edit_or_swapped_object() -> None:
    edit = Edit(function=Target("tiny", "double"), find="2", replace="3")
    swap = Swap(object=Target("other", "half"), replacement=Target("faults", "triple"))
    assert Mutant(id="m", fault="f", change=edit, location=HERE).module == "tiny"
    assert Mutant(id="m", fault="f", change=swap, location=HERE).module == "other"


@pytest.mark.parametrize(
    ("target", "function", "held"),
    [
        ("losses", "losses:kd", True),
        ("losses", "losses.kl:forward", True),
        ("losses", "losses_old:kd", False),
        ("losses:Kd", "losses:Kd.forward", True),
        ("losses:Kd", "losses:Kd", True),
        ("losses:Kd", "losses:KdTwo", False),
        ("losses:Kd", "losses.kl:Kd", False),
    ],
)
def test_mutated_holds_a_function_of_its_module_or_class(target: str, function: str, held: bool) -> None:
    assert Mutated(target=Target.parse(target), location=HERE).holds(function) is held
