"""From YAML keys to definitions: inheritance of derivatives, reserved names, and all formulas."""

import ast

import pytest

from pv.equations.accuracy import Accuracy
from pv.equations.definition import Derivative
from pv.equations.parse import parse_equations
from pv.equations.refusal import Part


def test_all_formulas_are_valid(formulas) -> None:
    definitions, problems = parse_equations(formulas)
    assert problems == []
    assert list(definitions) == list(formulas)
    assert len(definitions) == 24


def test_equations_without_an_expression_are_left_out() -> None:
    assert parse_equations({"for_people": {"formula": "L = 0"}, "e": {"expression": "1"}})[0].keys() == {"e"}


def test_name_of_a_function_is_refused_as_name_of_an_equation() -> None:
    _, (problem,) = parse_equations({"softmax": {"domain": {"x": "real[V]"}, "expression": "sum(x)"}})
    assert problem.part is Part.NAME
    assert str(problem) == "reserved equation name 'softmax': it is a function; choose another name"


def test_problems_of_all_equations_are_returned() -> None:
    _, problems = parse_equations({"a": {"expression": "x"}, "b": {"expression": "1 +"}, "c": {"expression": "y"}})
    assert sorted(problem.equation for problem in problems) == ["a", "b", "c"]


def test_line_ends_around_a_block_scalar_are_ignored() -> None:
    definitions, problems = parse_equations({"e": {"expression": "\na = 1\na + 1\n", "requires": "1 < 2\n"}})
    assert problems == []
    assert [line.name for line in definitions["e"].formula.lines] == ["a", ""]


SQUARE = {
    "domain": {"x": "real[N] 1..2"},
    "expression": "sum(x**2, N)",
    "requires": "all(x > 0, N)",
    "dtypes": ["bfloat16"],
    "precision": "input",
    "tolerance": {"relative": 0.1, "why": "a test"},
}
SLOPE = {
    "derivative_of": {"equation": "square", "with_respect_to": "x"},
    "result": "real[N]",
    "expression": "2 * x",
}


def test_derivative_inherits_domain_requires_and_dtypes() -> None:
    definitions, problems = parse_equations({"square": SQUARE, "slope": SLOPE})
    assert problems == []
    slope = definitions["slope"]
    assert slope.variables == definitions["square"].variables
    assert slope.derivative == Derivative("square", "x")
    assert ast.unparse(slope.requires.lines[-1].value) == "all(x > 0, N)"
    assert slope.accuracy == Accuracy(("bfloat16",), "", None)


def test_derivative_overrides_what_it_declares_itself() -> None:
    own = {**SLOPE, "requires": "any(x > 1, N)", "dtypes": ["float64"], "precision": "float32"}
    definitions, _ = parse_equations({"square": SQUARE, "slope": own})
    assert ast.unparse(definitions["slope"].requires.lines[-1].value) == "any(x > 1, N)"
    assert definitions["slope"].accuracy == Accuracy(("float64",), "float32", None)


@pytest.mark.parametrize(
    ("result", "axes"),
    {"real": [()], "real[B,T]": [("B", "T")], "real[B, T], prob[V], real": [("B", "T"), ("V",), ()]}.items(),
)
def test_results_are_read_with_their_axes(result, axes) -> None:
    domain = {"x": "real[B,T]", "y": "real[V]"}
    values = {(): "1", ("B", "T"): "x", ("V",): "y"}
    expression = ", ".join(values[each] for each in axes)
    definitions, problems = parse_equations({"e": {"domain": domain, "result": result, "expression": expression}})
    assert (problems, definitions["e"].results) == ([], tuple(axes))
