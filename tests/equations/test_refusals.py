"""Expressions that are refused, at their line and column: by syntax, names, axes, types and arguments."""

from pathlib import Path

import pytest
import yaml

from pv.equations.refusal import Part

TABLES = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
REFUSED = TABLES["syntax"] | TABLES["names"] | TABLES["axes"]
REFUSED |= {
    "(" * 200 + "1" + ")" * 200: (1, 31, "brackets nested deeper than 30"),
    "-" * 1500 + "1": (1, 1, "too many syntax nodes: 3003, expected at most 400"),
    "s + " * 600 + "s": (1, 1, "too long: 2401 characters, expected at most 2000"),
}


@pytest.mark.parametrize("expression", REFUSED, ids=[repr(text[:24]) for text in REFUSED])
def test_invalid_expression_is_refused_at_its_position(expression, problem_of) -> None:
    line, column, message = REFUSED[expression]
    problem = problem_of(expression=expression)
    assert message in str(problem)
    assert (problem.part, problem.refusal.line, problem.refusal.column) == (Part.EXPRESSION, line, column)


@pytest.mark.parametrize("expression", TABLES["habits"])
def test_habit_of_pytorch_is_answered_with_what_to_write(expression, problem_of) -> None:
    assert TABLES["habits"][expression] in str(problem_of(expression=expression, result="real[V]").refusal)
