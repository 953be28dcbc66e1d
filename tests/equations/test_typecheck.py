"""The static check: expressions are refused at their position, and an equation must fit what it declares."""

from pathlib import Path

import pytest
import yaml

from pv.equations.language import Part
from pv.equations.parse import parse_equations

TABLES = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("says", TABLES["results"])
def test_result_must_match_the_expression(says, problem_of) -> None:
    result, expression = TABLES["results"][says]
    problem = problem_of(expression=expression, result=result)
    assert (problem.part, str(problem)) == (Part.RESULT, says)


@pytest.mark.parametrize("says", TABLES["conditions"])
def test_requires_must_be_a_condition(says, problem_of) -> None:
    problem = problem_of(expression="sum(s)", requires=TABLES["conditions"][says])
    assert (problem.key, str(problem)) == ("requires", says)


@pytest.mark.parametrize("wrong", ["s", "tau > 0, tau > 1", "tau > 0 +"])
def test_second_invariant_must_be_one_condition(wrong, problem_of) -> None:
    assert problem_of(expression="sum(s)", invariants=["tau > 0", wrong]).key == "invariants/1"


def test_brackets_side_by_side_are_not_nested() -> None:
    equation = {"domain": {"x": "real"}, "expression": "+".join(["(x)"] * 40)}
    assert parse_equations({"e": equation})[1] == []


@pytest.mark.parametrize("says", TABLES["derivatives"])
def test_derivative_must_fit_its_equation(says, domain) -> None:
    of, by, result = TABLES["derivatives"][says]
    expression = "2 * s" if result == "real[V]" else "sum(s)"
    equations = {
        "loss": {"domain": domain, "expression": "sum(s * s, V) + s[y]"},
        "vector": {"domain": domain, "expression": "s * s", "result": "real[V]"},
        "pair": {"domain": domain, "expression": "sum(s), sum(t)", "result": "real, real"},
        "e": {"derivative_of": {"equation": of, "with_respect_to": by}, "expression": expression, "result": result},
    }
    _, (problem,) = parse_equations(equations)
    assert (problem.equation, problem.part) == ("e", Part.DERIVATIVE_OF)
    assert str(problem) == says


def test_derivative_must_have_the_domain_of_its_equation() -> None:
    of = {"equation": "loss", "with_respect_to": "x"}
    equations = {
        "loss": {"domain": {"x": "real", "a": "real"}, "expression": "a * x"},
        "e": {"domain": {"a": "real"}, "derivative_of": of, "expression": "a"},
    }
    _, (problem,) = parse_equations(equations)
    assert str(problem) == "`domain` differs from the domain of loss; remove `domain`; it is inherited"


def test_too_many_elements_are_refused_before_anything_is_drawn(problem_of) -> None:
    domain = {"x": "real[A,B]", "y": "real[C,D]", **dict.fromkeys("ABCD", "size 1..1000")}
    problem = problem_of(domain=domain, expression="sum(x * y, A, B, C, D)")
    assert "axes [A,B,C,D] may have more than 1048576 elements" in str(problem)


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
def test_pytorch_syntax_is_refused_with_the_equivalent(expression, problem_of) -> None:
    assert TABLES["habits"][expression] in str(problem_of(expression=expression, result="real[V]").refusal)
