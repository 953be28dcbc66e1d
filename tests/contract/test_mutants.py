"""Mutants name the module that they change, and `mutation_scope` the modules that it contains."""

from pathlib import Path

import pytest

from pv.contract.finding import Location
from pv.contract.mutants import Edit, Mutant, MutationScope, Name, Swap
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
        ("losses.__init__", "losses:kd", True),
        ("losses.__init__", "losses.kl:forward", False),
    ],
)
def test_scope_holds_the_functions_of_its_modules_and_packages(target: str, function: str, held: bool) -> None:
    named = Name(text=target, location=HERE)
    assert named.holds(function) is held
    assert MutationScope(modules=(Name(text="other", location=HERE), named)).holds(function) is held
