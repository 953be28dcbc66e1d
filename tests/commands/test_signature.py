"""Required parameters are proposed strategies and domains by their annotations."""

import ast
from pathlib import Path

import pytest

from pv.commands.signature import RESERVED, Parameter, parameters
from pv.source.resolve import Function


def read(signature: str) -> tuple[Parameter, ...]:
    (node,) = ast.parse(f"def f({signature}): ...").body
    assert isinstance(node, ast.FunctionDef)
    return parameters(Function(Path("f.py"), node))


def test_only_required_parameters_are_returned_in_order() -> None:
    found = read("a: int, b: float = 1.0, *rest: int, c: bool, d: str = '', **others: int")
    assert [(each.name, each.argument) for each in found] == [("a", "a"), ("c", "c=c")]
    assert [each.argument for each in read("a, /, b")] == ["a", "b"]


@pytest.mark.parametrize(
    ("annotation", "domain"),
    [
        ("int", "int 1..10"),
        ("float", "real 0.125..8"),
        ("'float'", "real 0.125..8"),
        ("bool", "mask"),
        ("str", ""),
        ("torch.Tensor", "real[N]"),
        ("Tensor", "real[N]"),
        ("list[float]", ""),
        ("collections.abc.Sequence[int]", ""),
    ],
)
def test_known_annotation_has_a_strategy_and_a_domain(annotation: str, domain: str) -> None:
    (found,) = read(f"a: {annotation}")
    assert found.domain == domain
    assert found.strategy


def test_missing_annotation_is_a_number_and_an_unknown_one_is_left_to_the_author() -> None:
    plain, unknown = read("a, b: dict[str, Widget]")
    assert (plain.annotation, plain.domain) == ("", "real 0.125..8")
    assert (unknown.annotation, unknown.strategy, unknown.domain) == ("dict[str, Widget]", "", "")


def test_optional_parameters_are_returned_only_if_none_is_required() -> None:
    assert [each.argument for each in read("a: int = 1, *, b: float = 2.0")] == ["a=a", "b=b"]
    assert [each.argument for each in read("a=1, /, *rest")] == ["a", "*rest"]
    assert [each.argument for each in read("*rest, **others")] == ["*rest", "**others"]
    assert read("") == ()


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_parameter_with_a_name_that_the_test_uses_is_drawn_under_another(name: str) -> None:
    (found,) = read(f"*, {name}")
    assert (found.drawn, found.given("1")) == (f"{name}_", f"{name}=1")
