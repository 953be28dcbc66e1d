"""The mutants of an equation: one symbol replaced, only where types and axes still fit."""

import ast

import pytest

from pv.equations.mutants import mutants
from pv.equations.parse import parse_equations


def found(equations, name):
    parsed, problems = parse_equations(equations)
    assert problems == []
    callees = {each: equation.callee for each, equation in parsed.items()}
    return list(mutants(name, callees, parsed[name].results))


def test_mutant_has_its_position_and_the_text_before_and_after(formulas) -> None:
    shown = {(c.equation, c.line, c.column, c.before, c.after) for c in found(formulas, "kd_loss")}
    assert shown >= {
        ("kd_loss", 1, 10, "y != -100", "y == -100"),
        ("kd_loss", 3, 23, "t / tau", "t"),
        ("kd_loss", 3, 23, "t", "s"),
        ("kd_loss", 4, 40, "2", "1"),
        ("kd_loss", 4, 6, "ce_weight", "kd_weight"),
        ("kl", 1, 27, "log_q", "log_p"),
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    {
        "a + b": {"a - b", "a", "b", "b + b", "a + a"},
        "a - b": {"a + b", "a", "-b", "b - b", "a - a"},
        "a // 3": {"a / 3", "a", "b // 3", "a // 4", "a // 2"},
        "a ** 0.5": {"a * 0.5", "a", "b ** 0.5", "a ** 1.0"},
        "log(a)": {"log1p(a)", "log(b)"},
        "where(a < b, 1, a)": {
            *("where(a <= b, 1, a)", "where(a >= b, 1, a)", "where(a < b, a, 1)", "where(a < b, 2, a)"),
            *("where(a < b, 0, a)", "where(b < b, 1, a)", "where(a < a, 1, a)", "where(a < b, 1, b)"),
        },
        "sum(x, N, where=x > a)": {
            *("mean(x, N, where=x > a)", "sum(x, N)", "sum(x, N, where=x >= a)", "sum(x, N, where=x <= a)"),
            "sum(x, N, where=x > b)",
        },
        "max(x)": {"min(x)"},
        "c = a\nc * sum(x)": {
            "c = b\nc * sum(x)",
            "c = a\nc / sum(x)",
            "c = a\nc",
            "c = a\nsum(x)",
            "c = a\nc * mean(x)",
        },
    }.items(),
)
def test_mutants_of_a_small_equation_are_complete(expression, expected) -> None:
    domain = {"a": "real 1..2", "b": "real 1..2", "x": "real[N]"}
    every = found({"e": {"domain": domain, "expression": expression}}, "e")
    shown = {"\n".join(_line(line) for line in mutant.callees["e"].formula.lines) for mutant in every}
    assert shown == expected
    assert len(every) == len(expected)


def _line(line) -> str:
    return (f"{line.name} = " if line.name else "") + ast.unparse(line.value)
