"""The values of the functions of the language, against Python's own and against values computed by hand."""

import math
from pathlib import Path

import pytest
import yaml

from pv.equations.language import ELEMENTWISE

# The others have the names that they have in `math`.
ORACLES = {
    "abs": abs,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "relu": lambda x: max(x, 0.0),
    "sign": lambda x: math.copysign(1.0, x),
}


@pytest.mark.parametrize("name", sorted(set(ELEMENTWISE) - {"maximum", "minimum", "clip"}))
def test_elementwise_function_equals_its_python_function(name, evaluated) -> None:
    points = [0.3, 1.7, 2.5] if name in ("log", "sqrt") else [-0.6, 0.3, 2.5]
    oracle = ORACLES.get(name) or getattr(math, name)
    found = evaluated(f"{name}(x)", {"x": "real[N]"}, "real[N]", x=points)
    assert found == pytest.approx([float(oracle(point)) for point in points], rel=1e-15)


TABLES = yaml.safe_load((Path(__file__).parent / "values.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("table", "expression"), [(name, text) for name in TABLES for text in TABLES[name]["values"]])
def test_value_is_that_computed_by_hand(table, expression, evaluated) -> None:
    domain, arrays = TABLES[table]["domain"], TABLES[table]["arrays"]
    result, expected = TABLES[table]["values"][expression]
    assert evaluated(expression, domain, result, **arrays) == expected
