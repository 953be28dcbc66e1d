"""Domains: the text of a variable, its bounds, the refusals, and what needs PyTorch."""

from pathlib import Path

import pytest
import yaml

from pv.equations.domain import InvalidVariable, Kind, Variable, axis_bounds, parse_domain
from pv.equations.parse import parse_equations
from pv.equations.scalars import needs_torch

TABLES = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
REFUSED, NAMES = TABLES["domains"], TABLES["names_of_variables"]


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_variable_is_a_problem_of_its_key(text) -> None:
    _, problems = parse_equations({"e": {"domain": {"x": text}, "expression": "1"}})
    assert [(problem.key, REFUSED[text] in str(problem)) for problem in problems] == [("domain/x", True)]


@pytest.mark.parametrize("says", NAMES)
def test_variable_must_fit_the_earlier_ones(says) -> None:
    name, text = NAMES[says]
    with pytest.raises(InvalidVariable) as refused:
        parse_domain({"array": "real[N]", "mask": "mask", "K": "size 1..3", name: text})
    assert (refused.value.variable, str(refused.value)) == (name, says)


def test_too_many_elements_are_refused() -> None:
    with pytest.raises(InvalidVariable, match="x may have more than 1048576 elements"):
        parse_domain({"A": "size 1..4096", "B": "size 1..4096", "x": "real[A,B]"})


def test_variables_are_read_in_order_with_kind_axes_and_bounds_and_axes_have_sizes() -> None:
    texts = {"K": "size 2..3", "s": "logits[B,T,V]", "y": "index of V [B] or -100", "n": "int 0..9", "k": "real n..K"}
    assert list(parse_domain(texts).values()) == [
        Variable("K", Kind.SIZE, (), 2.0, 3.0),
        Variable("s", Kind.LOGITS, ("B", "T", "V"), -50.0, 50.0),
        Variable("y", Kind.INDEX, ("B",), 0.0, 0.0, of="V", extra=-100),
        Variable("n", Kind.INT, (), 0.0, 9.0),
        Variable("k", Kind.REAL, (), "n", "K"),
    ]
    variables = parse_domain({"N": "size 3..7", "x": "real[N,V]", "y": "index of W [B]"})
    assert axis_bounds(variables) == {"N": (3, 7), "V": (2, 8), "W": (1, 4), "B": (1, 4)}


SCALARS = {"x": "real", "n": "int 1..9", "V": "size 2..8", "i": "index of V", "m": "mask"}
SQUARE = {"equation": "square", "with_respect_to": "x"}
LAYOUT = {"implemented_by": "f(x)", "checks": ["repeatable", "expanded_inputs"]}


@pytest.mark.parametrize(
    ("keys", "needed_for"),
    [
        ({"expression": "where(m and i == 0, x, n * V)", "invariants": ["e(x, n, i, m) <= 100"]}, ""),
        ({"expression": "x", "implemented_by": "f(x)", "checks": ["repeatable", "inputs_unchanged"]}, ""),
        ({"domain": {"x": "real[B,V]"}, "expression": "sum(x, B, V)"}, "the array x[B,V]"),
        ({"expression": "x + sum(one_hot(i), V)"}, "the array one_hot(i)"),
        ({"expression": "x", "requires": "any(one_hot(i) > 0, V)"}, "the array one_hot(i)"),
        ({"expression": "x", "invariants": ["any(one_hot(i) > 0, V)"]}, "the array one_hot(i)"),
        ({"expression": "x + hot(i)"}, "the array one_hot(j)"),
        ({"expression": "x", **LAYOUT}, "the check expanded_inputs"),
        ({"derivative_of": SQUARE, "expression": "2 * x"}, "the derivative of square"),
    ],
)  # fmt: skip
def test_reason_is_named(keys, needed_for: str) -> None:
    equations = {
        "square": {"domain": SCALARS, "expression": "x * x"},
        "hot": {"domain": {"j": "index of V"}, "expression": "sum(one_hot(j), V)"},
        "e": {"domain": SCALARS, **keys},
    }
    definitions, problems = parse_equations(equations)
    assert problems == []
    assert needs_torch(definitions["e"], definitions) == needed_for
