"""Refusals and the keys that they belong to."""

import pytest

from pv.equations.refusal import InvalidEquation, Part, Refusal


def test_text_of_a_refusal_ends_with_its_hint() -> None:
    assert str(Refusal("empty range 5..1", hint="write the lower bound first")) == (
        "empty range 5..1; write the lower bound first"
    )
    assert str(Refusal("duplicate axis V")) == "duplicate axis V"


@pytest.mark.parametrize(
    ("part", "item", "key"),
    [(Part.EXPRESSION, "", "expression"), (Part.DOMAIN, "x", "domain/x"), (Part.INVARIANTS, "0", "invariants/0")],
)
def test_key_is_the_path_of_the_text_below_the_equation(part, item, key) -> None:
    assert InvalidEquation("e", part, Refusal("duplicate axis V"), item).key == key
