"""`implemented_by` and `returns`: what is parsed, what is refused, and what is computed."""

from types import SimpleNamespace

import pytest
import torch

from pv.equations.call import parse_call, parse_returns, returned
from pv.equations.refusal import Refusal

NAMES = frozenset({"s", "t", "tau", "V"})

REFUSED_CALLS = {
    "s": (1, "expected a call, such as `kd_loss(s, t, temperature=tau)`"),
    "f(m)": (3, "unknown variable 'm'; the domain has V, s, t, tau"),
    "f(s, k=m)": (8, "unknown variable 'm'"),
    "f(s + 1)": (3, "invalid argument: expected a variable, a literal, [a, b] or zip(a, b)"),
    "f(b'text')": (3, "invalid argument"),
    "f(g(s))": (3, "invalid argument"),
    "f(*s)": (3, "invalid argument"),
    "f(**s)": (1, "unsupported syntax: ** in a call"),
    "f()(s)": (1, "invalid function: expected a dotted name"),
    "a._b(s)": (1, "invalid function: expected a dotted name"),
    "(" + "-" * 480 + "f)(s)": (2, "invalid function: expected a dotted name"),
    "f(s": (2, "not an expression"),
    "f(" + "s, " * 200 + ")": (1, "too long: 603 characters, expected at most 500"),
}


@pytest.mark.parametrize("text", REFUSED_CALLS, ids=[text[:16] for text in REFUSED_CALLS])
def test_invalid_call_is_refused_at_its_column(text) -> None:
    with pytest.raises(Refusal) as refused:
        parse_call(text, NAMES)
    column, message = REFUSED_CALLS[text]
    assert message in str(refused.value)
    assert refused.value.column == column


def test_arguments_are_variables_literals_lists_and_pairs() -> None:
    call = parse_call("losses.kd(s, -1, [s, 2.5], pairs=zip(s, t), size=V, flag=True, mask=None, by='name')", NAMES)
    s, t = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    positional, named = call.arguments({"s": s, "t": t, "tau": 2.0, "V": 2})
    assert call.function == "losses.kd"
    assert positional[0] is s and positional[1] == -1 and positional[2][0] is s and positional[2][1] == 2.5
    assert named == {"pairs": [(1.0, 3.0), (2.0, 4.0)], "size": 2, "flag": True, "mask": None, "by": "name"}


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
    "result['key']": "invalid literal 'key': expected a number",
    "result[count]": "expected an integer in [ ]",
    "result(1)": "unsupported syntax",
    "-total": "unsupported syntax",
    "True": "invalid literal True: expected a number",
}


@pytest.mark.parametrize("text", REFUSED_RETURNS)
def test_invalid_returns_is_refused(text) -> None:
    with pytest.raises(Refusal) as refused:
        parse_returns(text, 1)
    assert REFUSED_RETURNS[text] in str(refused.value)
