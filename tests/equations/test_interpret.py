"""Calls of other equations."""

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
