"""`returns`: what is parsed, what is refused, and what is computed."""

from types import SimpleNamespace

import pytest

from pv.equations.refusal import Refusal
from pv.equations.returns import parse_returns, returned

RETURNS = {
    "result": 7.0,
    "total / count": 2.5,
    "result.total": 10.0,
    "inner.values[1]": 6,
    "inner.values[0] + total * 2": 25.0,
    "total - count, count": (6.0, 4.0),
}


@pytest.mark.parametrize("text", RETURNS)
def test_returns_is_computed_from_the_returned_object(text) -> None:
    expected = RETURNS[text]
    result = 7.0 if text == "result" else SimpleNamespace(total=10.0, count=4.0, inner=SimpleNamespace(values=(5, 6)))
    tree = parse_returns(text, len(expected) if isinstance(expected, tuple) else 1)
    assert returned(tree, result) == expected


REFUSED_RETURNS = {
    "total, count": "declares 2 values, `result` declares 1",
    "total ** 2": "unsupported operator: expected + - * /",
    "result._private": "private attribute '_private'",
    "result + 'key'": "invalid literal 'key': expected a number",
    "result(1)": "unsupported syntax",
}


@pytest.mark.parametrize("text", REFUSED_RETURNS)
def test_invalid_returns_is_refused(text) -> None:
    with pytest.raises(Refusal) as refused:
        parse_returns(text, 1)
    assert REFUSED_RETURNS[text] in str(refused.value)


def test_attribute_of_a_dict_says_how_to_write_an_item() -> None:
    with pytest.raises(LookupError, match=r"the code returned a dict: write `result\['loss'\]` in `returns`"):
        returned(parse_returns("loss", 1), {"loss": 1.0})


def test_a_bare_name_of_an_array_is_the_argument_and_result_has_its_attributes() -> None:
    result = SimpleNamespace(total=10.0)
    assert returned(parse_returns("total", 1), result, {"total": 3.0}) == 3.0
    assert returned(parse_returns("result.total, total", 2), result, {"total": 3.0}) == (10.0, 3.0)
