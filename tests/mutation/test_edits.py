"""Each operator on one expression: the source that takes its place."""

import ast

import pytest

from pv.mutation.edits import OPERATORS, constants, negated, root


def changes(operator: str, source: str, *foreign: str) -> list[str]:
    return [new for _, new in OPERATORS[operator](ast.parse(source, mode="eval").body, frozenset(foreign))]


@pytest.mark.parametrize(
    ("operator", "source", "made"),
    [
        ("comparison", "a < b <= c", ["a <= b <= c", "a < b < c"]),
        ("arithmetic", "a % b", ["a // b"]),
        ("arithmetic", "a + 'text'", []),
        ("arithmetic", "-1", []),
        ("logic", "a and b and c", ["a or b or c"]),
        ("condition", "a if b else c", ["not b"]),
        ("condition", "a if b == c else d", []),
        ("constant", "3", ["4"]),
        ("constant", "0.0", ["1.0"]),
        ("constant", "a['k']", ["'k~'"]),
        ("constant", "'text'", []),
        ("off by one", "range(n)", ["n + 1"]),
        ("off by one", "range(3)", []),
        ("swapped arguments", "f(a, b, c)", ["f(b, a, c)", "f(a, c, b)"]),
        ("swapped arguments", "torch.maximum(a, b)", []),
        ("swapped arguments", "torch.mul(a, b, out=c)", []),
        ("removed call", "x.abs()", ["x"]),
        ("removed call", "self.abs()", []),
    ],
)
def test_operator_makes_exactly_its_changes(operator: str, source: str, made: list[str]) -> None:
    assert changes(operator, source) == made


def test_call_of_an_imported_module_is_not_removed() -> None:
    assert changes("removed call", "torch.zeros(2)") == ["torch"]
    assert changes("removed call", "torch.zeros(2)", "torch") == []


@pytest.mark.parametrize(("source", "name"), [("a.b(1)[2].c", "a"), ("(a + b).c", ""), ("f()", "f")])
def test_root_is_the_name_that_an_expression_starts_from(source: str, name: str) -> None:
    assert root(ast.parse(source, mode="eval").body) == name


def test_condition_that_another_operator_inverts_is_not_negated() -> None:
    conditions = {source: ast.parse(source, mode="eval").body for source in ("a", "a < b", "a == b", "not a", "True")}
    negations = {source: [new for _, new in negated(node)] for source, node in conditions.items()}
    assert negations == {"a": ["not a"], "a < b": ["not a < b"], "a == b": [], "not a": [], "True": []}


def test_truth_value_is_inverted_and_not_increased() -> None:
    assert [new for _, new in constants(ast.Constant(True))] == ["False"]
