"""The type of a variable's values."""

import pytest

from pv.equations.domain import Kind, Variable
from pv.equations.language import parse
from pv.equations.values import Callee, ValueType, value_type, variable_value


@pytest.mark.parametrize("kind", Kind)
def test_only_masks_are_conditions_and_only_indices_are_indices(kind) -> None:
    expected = {"mask": ValueType.CONDITION, "index": ValueType.INDEX}.get(kind.value, ValueType.NUMBER)
    assert value_type(Variable("x", kind, (), 0.0, 1.0)) is expected


def test_value_of_an_index_keeps_the_axis_that_it_selects_from() -> None:
    value = variable_value(Variable("y", Kind.INDEX, ("B",), 0.0, 0.0, of="V"), "content")
    assert (value.axes, value.type, value.content, value.of) == (("B",), ValueType.INDEX, "content", "V")


def test_largest_sizes_include_axes_without_a_declared_size() -> None:
    variables = {"N": Variable("N", Kind.SIZE, (), 2.0, 5.0), "x": Variable("x", Kind.REAL, ("N", "B"), 0.0, 1.0)}
    assert Callee(parse("1"), variables).largest_sizes == {"N": 5, "B": 4}
