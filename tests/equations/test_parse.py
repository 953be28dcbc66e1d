"""From YAML keys to definitions: syntax, inheritance of derivatives, reserved names; nothing is executed."""

import ast

import pytest

from pv.equations.accuracy import Accuracy
from pv.equations.definition import Derivative
from pv.equations.language import parse
from pv.equations.parse import parse_equations
from pv.equations.refusal import Part, Refusal

REFUSED = {
    "s.grad": (1, 1, "methods are not supported: `.grad`"),
    "__import__('os')": (1, 1, "invalid name '__import__': double underscores are not allowed"),
    "'a'": (1, 1, "invalid literal 'a': expected a finite number"),
    "[x for x in s]": (1, 1, "unsupported syntax: ListComp"),
    "(lambda: 1)()": (1, 2, "unsupported syntax: Lambda"),
    "1e999": (1, 1, "invalid literal 'inf': expected a finite number"),
    "(" * 200 + "1" + ")" * 200: (1, 31, "brackets nested deeper than 30"),
    "-" * 1500 + "1": (1, 1, "too many syntax nodes: 3003, expected at most 400"),
    "s + " * 600 + "s": (1, 1, "too long: 2401 characters, expected at most 2000"),
    "sum(s) # + sum(t)": (1, 8, "unsupported character '#'"),
    "sum(s) + 9**9**9**9": (1, 10, "`9 ** 9 ** 9 ** 9` is not a finite number"),
    "1 / 0": (1, 1, "`1 / 0` is not a finite number"),
    "sum(*s)": (1, 5, "unsupported syntax: Starred"),
    "True": (1, 1, "invalid literal 'True'"),
    "s if t": (1, 1, "not an expression"),
    "": (1, 1, "missing value: the last line must be an expression without a name"),
    "import os": (1, 1, "unsupported syntax: Import"),
    "sum = 1\nsum(s)": (1, 1, "reserved name 'sum'; choose another name"),
    "s\nt": (1, 1, "expected `name = expression` on every line but the last"),
    "(s, t) + 1": (1, 1, "several values are allowed only on the last line"),
    "ｓ + 1": (1, 1, "compatibility character, such as a full-width letter"),
    "one = sum(s)\n  one": (2, 2, "not an expression"),
}


@pytest.mark.parametrize("expression", REFUSED, ids=[repr(text[:24]) for text in REFUSED])
def test_invalid_syntax_is_refused_at_its_position(expression) -> None:
    with pytest.raises(Refusal) as refused:
        parse(expression)
    line, column, message = REFUSED[expression]
    assert message in str(refused.value)
    assert (refused.value.line, refused.value.column) == (line, column)


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
