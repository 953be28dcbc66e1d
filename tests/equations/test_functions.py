"""The values of the functions of the language, against Python's own and against values computed by hand."""

import math

import pytest

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


MATRIX = [[1.0, 5.0, -2.0], [4.0, 0.5, 3.0]]
VALUES = {
    "maximum(x, 2)": ("real[N,M]", [[2.0, 5.0, 2.0], [4.0, 2.0, 3.0]]),
    "minimum(x, 2)": ("real[N,M]", [[1.0, 2.0, -2.0], [2.0, 0.5, 2.0]]),
    "clip(x, 0, 4)": ("real[N,M]", [[1.0, 4.0, 0.0], [4.0, 0.5, 3.0]]),
    "where(x > 1, x, 0)": ("real[N,M]", [[0.0, 5.0, 0.0], [4.0, 0.0, 3.0]]),
    "sum(x, N, M)": ("real", 11.5),
    "sum(x, M)": ("real[N]", [4.0, 7.5]),
    "mean(x, N)": ("real[M]", [2.5, 2.75, 0.5]),
    "sum(x, M, where=x > 0)": ("real[N]", [6.0, 7.5]),
    "sum(x, N, where=row)": ("real[M]", [4.0, 0.5, 3.0]),
    "max(x, N, M)": ("real", 5.0),
    "prod(x, N)": ("real[M]", [4.0, 2.5, -6.0]),
    "count(x > 2, N, M)": ("real", 3.0),
    "count(row)": ("real", 1.0),
    "where(any(x > 4, M), 1, 0)": ("real[N]", [1.0, 0.0]),
    "where(all(x > 0, M), 1, 0)": ("real[N]", [0.0, 1.0]),
    "cumsum(x, M)": ("real[N,M]", [[1.0, 6.0, 4.0], [4.0, 4.5, 7.5]]),
    "cumprod(x, N)": ("real[N,M]", [[1.0, 5.0, -2.0], [4.0, 2.5, -6.0]]),
    "one_hot(i)": ("real[N,M]", [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "one_hot(argmax(x, M))": ("real[N,M]", [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "x[top(x, M, K)]": ("real[N,K]", [[5.0, 1.0], [4.0, 3.0]]),
}


@pytest.mark.parametrize("expression", VALUES)
def test_value_is_that_computed_by_hand(expression, evaluated) -> None:
    result, expected = VALUES[expression]
    domain = {"K": "size 2..2", "x": "real[N,M]", "row": "mask[N]", "i": "index of M [N]"}
    assert evaluated(expression, domain, result, x=MATRIX, row=[False, True], i=[2, 0]) == expected
