"""`implemented_by` and `returns`: what is parsed, what is refused, and what is computed."""

import functools
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from pv.equations.call import defined_at, evaluate_returns, parse_call, parse_returns
from pv.equations.language import Refusal

NAMES = frozenset({"s", "t", "tau", "V"})
TABLES = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
LONG = {"f(" + "s, " * 200 + ")": (1, "too long: 603 characters, expected at most 500")}
REFUSED_CALLS = TABLES["calls"] | LONG


@pytest.mark.parametrize("text", REFUSED_CALLS, ids=[text[:16] for text in REFUSED_CALLS])
def test_invalid_call_is_refused_at_its_column(text) -> None:
    with pytest.raises(Refusal) as refused:
        parse_call(text, NAMES)
    column, message = REFUSED_CALLS[text]
    assert message in str(refused.value)
    assert refused.value.column == column


class Recorder:
    """Records the arguments of its call."""

    def __call__(self, *positional, **named):
        self.arguments = positional, named


def test_arguments_are_variables_literals_lists_and_pairs() -> None:
    call = parse_call("losses.of.kd(s, -1, [s, 2.5], pairs=zip(s, t), size=V, flag=True, mask=None, by='name')", NAMES)
    s, t = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    kd = Recorder()
    call.evaluate(
        SimpleNamespace(losses=SimpleNamespace(of=SimpleNamespace(kd=kd))), {"s": s, "t": t, "tau": 2.0, "V": 2}
    )
    positional, named = kd.arguments
    assert call.function == "losses.of.kd"
    assert positional[0] is s and positional[1] == -1 and positional[2][0] is s and positional[2][1] == 2.5
    assert named == {"pairs": [(1.0, 3.0), (2.0, 4.0)], "size": 2, "flag": True, "mask": None, "by": "name"}
    assert call.names == {"s", "t", "V"}


def test_arguments_are_arithmetic_tuples_and_dicts() -> None:
    text = "f(2 * tau + 1, -tau, (tau, V // 2), batch={'tau': tau, 'sizes': [V, V % 2]}, k=V**2 - 1 / 2, s=s)"
    call = parse_call(text, NAMES)
    f = Recorder()
    call.evaluate(SimpleNamespace(f=f), {"tau": 3.0, "V": 4, "s": 1})
    assert f.arguments == ((7.0, -3.0, (3.0, 2)), {"batch": {"tau": 3.0, "sizes": [4, 0]}, "k": 15.5, "s": 1})
    assert call.names == {"tau", "V", "s"}


class Scaler:
    def __init__(self, factor, *, shift=0.0):
        self.factor, self.shift = factor, shift

    def scale(self, x):
        return self.factor * x + self.shift


def test_method_of_a_constructed_object_is_called() -> None:
    subject = SimpleNamespace(Scaler=Scaler)
    call = parse_call("Scaler(tau, shift=1).scale(s)", NAMES)
    assert call.function == "Scaler.scale"
    assert [name for name, _ in call.calls] == ["Scaler", "Scaler.scale"]
    assert call.evaluate(subject, {"tau": 2.0, "s": 5.0}) == 11.0
    assert call.format({"tau": 2.0, "s": 5.0}, repr) == "Scaler(2.0, shift=1).scale(5.0)"
    assert call.format({"tau": 2.0, "s": [5.0] * 99}, repr) == "Scaler(2.0, shift=1).scale(s)"


def test_code_is_defined_at_its_constructor_or_below_its_decorator() -> None:
    subject = SimpleNamespace(Scaler=Scaler, scale=functools.wraps(Scaler.scale)(lambda *_: 0.0))
    places = [defined_at(subject, name) for name in ("Scaler", "scale", "Scaler.scale")]
    assert (places[0] or ())[2:] == ("Scaler.__init__",)
    assert places[1] == places[2] == (__file__, Scaler.scale.__code__.co_firstlineno, "Scaler.scale")
    assert defined_at(subject, "absent") is defined_at(torch, "exp") is None


class Output(dict):
    """Has its items as attributes too, as the outputs of transformers."""

    loss = 2.0


RETURNS = {
    "result": 7.0,
    "total / count": 2.5,
    "result.total": 10.0,
    "inner.values[1]": 6,
    "inner.values[-1]": 7,
    "inner.values[0] + total * 2": 25.0,
    "total - count, count": (6.0, 4.0),
}


@pytest.mark.parametrize("text", RETURNS)
def test_returns_is_computed_from_the_returned_object(text) -> None:
    expected = RETURNS[text]
    result = (
        7.0 if text == "result" else SimpleNamespace(total=10.0, count=4.0, inner=SimpleNamespace(values=(5, 6, 7)))
    )
    tree = parse_returns(text, len(expected) if isinstance(expected, tuple) else 1)
    assert evaluate_returns(tree, result, {}) == expected


REFUSED_RETURNS = TABLES["returns"]


@pytest.mark.parametrize("text", REFUSED_RETURNS)
def test_invalid_returns_is_refused(text) -> None:
    with pytest.raises(Refusal) as refused:
        parse_returns(text, 1)
    assert REFUSED_RETURNS[text] in str(refused.value)


def test_a_bare_name_of_an_array_is_the_argument_and_result_has_its_attributes() -> None:
    result = SimpleNamespace(total=10.0)
    assert evaluate_returns(parse_returns("total", 1), result, {"total": 3.0}) == 3.0
    assert evaluate_returns(parse_returns("result.total, total", 2), result, {"total": 3.0}) == (10.0, 3.0)
    with pytest.raises(LookupError, match=r"the code returned a dict: write `result\['loss'\]` in `returns`"):
        evaluate_returns(parse_returns("loss", 1), {"loss": 1.0}, {})
    assert evaluate_returns(parse_returns("loss", 1), Output(loss=2.0), {}) == 2.0
