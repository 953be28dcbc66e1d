"""From YAML keys to definitions: syntax, derivatives, reserved names, calls; nothing is executed."""

import ast
from pathlib import Path

import pytest
import yaml

from pv.equations.language import Part
from pv.equations.parse import Accuracy, Derivative, parse_equations


def test_expression_is_neither_imported_nor_executed(tmp_path) -> None:
    target = tmp_path / "touched"
    hostile = f"open({str(target)!r}, 'w')"
    domain = {"s": "logits[V]"}
    parse_equations({"e": {"domain": domain, "expression": hostile, "requires": hostile, "implemented_by": hostile}})
    assert not target.exists()


def test_name_of_a_function_is_refused_as_name_of_an_equation() -> None:
    _, (problem,) = parse_equations({"softmax": {"domain": {"x": "real[V]"}, "expression": "sum(x)"}})
    assert problem.part is Part.NAME
    assert str(problem) == "reserved equation name 'softmax': it is a function; choose another name"


SQUARE = {
    "domain": {"x": "real[N] 1..2"},
    "expression": "sum(x**2, N)",
    "requires": "all(x > 0, N)",
    "dtypes": ["bfloat16"],
    "precision": "input",
    "tolerance": {"relative": 0.1, "why": "a test"},
}
SLOPE = {"derivative_of": {"equation": "square", "with_respect_to": "x"}, "result": "real[N]", "expression": "2 * x"}


def test_derivative_inherits_undeclared_keys() -> None:
    definitions, problems = parse_equations({"square": SQUARE, "slope": SLOPE})
    assert problems == []
    slope = definitions["slope"]
    assert slope.variables == definitions["square"].variables
    assert slope.derivative == Derivative("square", "x")
    assert ast.unparse(slope.requires.lines[-1].value) == "all(x > 0, N)"
    assert slope.accuracy == Accuracy(("bfloat16",), "", None)
    overrides = {**SLOPE, "requires": "any(x > 1, N)", "dtypes": ["float64"], "precision": "float32"}
    definitions, _ = parse_equations({"square": SQUARE, "slope": overrides})
    assert ast.unparse(definitions["slope"].requires.lines[-1].value) == "any(x > 1, N)"
    assert definitions["slope"].accuracy == Accuracy(("float64",), "float32", None)


CALLS = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8"))["of_equations"]


@pytest.mark.parametrize("expression", CALLS)
def test_call_of_an_equation_is_checked_against_its_domain(expression, domain) -> None:
    equations = {
        "f": {"domain": {"p": "real[V]", "i": "index of V", "w": "mask[V]"}, "expression": "p[i] + sum(p, V, where=w)"},
        "two": {"domain": {"p": "real[V]"}, "result": "real, real", "expression": "sum(p, V), max(p, V)"},
        "wrong": {"domain": {"p": "real[V]"}, "expression": "sum(p, V, V)"},
        "leaky": {"domain": {"p": "real[V]"}, "expression": "sum(p, V) * tau"},
        "e": {"domain": domain, "expression": expression},
    }
    problems = {problem.equation: str(problem) for problem in parse_equations(equations)[1]}
    assert problems["e"] == CALLS[expression]


def test_chain_of_calls_has_a_limited_depth() -> None:
    equations = {f"e{n}": {"domain": {"x": "real"}, "expression": f"e{n + 1}(x) + 1"} for n in range(9)}
    equations["e9"] = {"domain": {"x": "real"}, "expression": "x"}
    refused = {problem.equation for problem in parse_equations(equations)[1]}
    assert refused == {"e0", "e1"}
