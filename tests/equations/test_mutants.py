"""The mutants of an equation: one symbol replaced, only where types and axes still fit."""

import ast
from pathlib import Path

import pytest
import yaml

from pv.equations.mutants import mutants
from pv.equations.parse import parse_equations

COMPLETE = yaml.safe_load((Path(__file__).parent / "mutants.yaml").read_text())


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


@pytest.mark.parametrize("expression", COMPLETE)
def test_mutants_of_a_small_equation_are_complete(expression) -> None:
    domain = {"a": "real 1..2", "b": "real 1..2", "x": "real[N]"}
    every = found({"e": {"domain": domain, "expression": expression}}, "e")
    lines = [[(line.name, ast.unparse(line.value)) for line in m.callees["e"].formula.lines] for m in every]
    shown = {"\n".join(f"{name} = {value}" if name else value for name, value in each) for each in lines}
    assert shown == set(COMPLETE[expression])
    assert len(every) == len(COMPLETE[expression])
