"""What needs PyTorch: arrays, derivatives and memory layouts; numbers without axes need nothing."""

import pytest

from pv.equations.parse import parse_equations
from pv.equations.requirements import needs_torch

SCALARS = {"x": "real", "n": "int 1..9", "V": "size 2..8", "i": "index of V", "m": "mask"}
SQUARE = {"equation": "square", "with_respect_to": "x"}
LAYOUT = {"implemented_by": "f(x)", "checks": ["repeatable", "expanded_inputs"]}


@pytest.mark.parametrize(
    ("keys", "needed_for"),
    [
        ({"expression": "where(m and i == 0, x, n * V)", "invariants": ["e(x, n, i, m) <= 100"]}, ""),
        ({"expression": "x", "implemented_by": "f(x)", "checks": ["repeatable", "inputs_unchanged"]}, ""),
        ({"domain": {"x": "real[B,V]"}, "expression": "sum(x, B, V)"}, "the array x[B,V]"),
        ({"expression": "x + sum(one_hot(i), V)"}, "the array one_hot(i)"),
        ({"expression": "x", "requires": "any(one_hot(i) > 0, V)"}, "the array one_hot(i)"),
        ({"expression": "x + hot(i)"}, "the array one_hot(j)"),
        ({"expression": "x", **LAYOUT}, "the check expanded_inputs"),
        ({"derivative_of": SQUARE, "expression": "2 * x"}, "the derivative of square"),
    ],
)  # fmt: skip
def test_reason_is_named(keys, needed_for: str) -> None:
    equations = {
        "square": {"domain": SCALARS, "expression": "x * x"},
        "hot": {"domain": {"j": "index of V"}, "expression": "sum(one_hot(j), V)"},
        "e": {"domain": SCALARS, **keys},
    }
    definitions, problems = parse_equations(equations)
    assert problems == []
    assert needs_torch(definitions["e"], definitions) == needed_for
