"""The interpreter: names, operators, selection and calls of other equations."""

import math

import pytest

from pv.equations.parse import parse_equations

CALLS = {
    "f(s)": "f takes the arguments p, i, w, in this order",
    "f(tau, y, m)": "argument p of f needs axis V, got []",
    "f(s, s, m)": "argument i of f: expected an index, got a number",
    "f(s, y, t)": "argument w of f: expected a condition, got a number",
    "two(s)": "two has 2 values and cannot be called",
    "wrong(s)": "in wrong: duplicate axis V",
}


@pytest.mark.parametrize("expression", CALLS)
def test_call_of_an_equation_is_checked_against_its_domain(expression, domain) -> None:
    equations = {
        "f": {"domain": {"p": "real[V]", "i": "index of V", "w": "mask[V]"}, "expression": "p[i] + sum(p, V, where=w)"},
        "two": {"domain": {"p": "real[V]"}, "result": "real, real", "expression": "sum(p, V), max(p, V)"},
        "wrong": {"domain": {"p": "real[V]"}, "expression": "sum(p, V, V)"},
        "e": {"domain": domain, "expression": expression},
    }
    problems = {problem.equation: str(problem) for problem in parse_equations(equations)[1]}
    assert problems["e"] == CALLS[expression]


def test_chain_of_calls_has_a_limited_depth() -> None:
    equations = {f"e{n}": {"domain": {"x": "real"}, "expression": f"e{n + 1}(x) + 1"} for n in range(9)}
    equations["e9"] = {"domain": {"x": "real"}, "expression": "x"}
    refused = {problem.equation for problem in parse_equations(equations)[1]}
    assert refused == {"e0", "e1"}


VALUES = {
    "x + 2 * y - x / y": [1 + 2 * 4 - 1 / 4, 7 + 2 * 2 - 7 / 2],
    "x // y + x % y": [0 + 1.0, 3 + 1.0],
    "x**y": [1.0, 49.0],
    "-x": [-1.0, -7.0],
    "x if x > y else y": [4.0, 7.0],
    "where(0 < x < 5, 1, 0)": [1.0, 0.0],
    "where(x > 0 and not x > y, 1, 0)": [1.0, 0.0],
    "where(x == 7 or y == 4 or x > 100, 1, 0)": [1.0, 1.0],
    "x * (x > y)": [0.0, 7.0],
    "x[0] + x[-1] + y * 0": [8.0, 8.0],
    "table[i]": [30.0, 10.0],
    "N + pi * 0 * x": [2.0, 2.0],
    "a = x + 1\na * a": [4.0, 64.0],
    "x * inf": [math.inf, math.inf],
}


@pytest.mark.parametrize("expression", VALUES)
def test_value_is_that_computed_by_hand(expression, evaluated) -> None:
    domain = {"x": "real[N]", "y": "real[N]", "table": "real[V]", "i": "index of V [N]"}
    arrays = {"x": [1.0, 7.0], "y": [4.0, 2.0], "table": [10.0, 20.0, 30.0], "i": [2, 0]}
    assert evaluated(expression, domain, "real[N]", **arrays) == VALUES[expression]
