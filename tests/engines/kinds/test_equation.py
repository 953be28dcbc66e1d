"""Falsifiers that compare code with an equation: what they take, replay and report."""

from pathlib import Path

import pytest

from pv.contract.claims import Equation, Falsifier
from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.engines.kinds import KINDS, kind_of
from pv.engines.kinds.equation import EquationPayload
from pv.errors import UsageError
from tests.engines.kinds.claims import BASE, CLAIMS

ENGINE = ("pv.engines.equation",)
HERE = Location(Path("c.yaml"))
SLOPE = {"derivative_of": {"equation": "twice", "with_respect_to": "x"}, "expression": "2"}
CONTRACT = Contract(
    id="c",
    version="1",
    description="",
    location=HERE,
    strict=True,
    equations=(
        Equation(name="twice", location=HERE, executable={"domain": {"x": "real 0..1"}, "expression": "x + x"}),
        Equation(name="slope", location=HERE, executable=SLOPE),
    ),
)


def test_equation_falsifier_with_a_run_stays_an_equation() -> None:
    assert kind_of(Falsifier(equation="twice", run="once", **BASE)).name == "equation"


@pytest.mark.parametrize("equation", ["twice", "slope"])
def test_example_names_the_variables_of_the_domain(equation: str) -> None:
    claim = Falsifier(equation=equation, **BASE)
    kind_of(claim).check_replay('{"x": 0.5}', CONTRACT, claim)
    with pytest.raises(UsageError, match="missing x; unknown variable 'y'") as refused:
        kind_of(claim).check_replay('{"y": 0.5}', CONTRACT, claim)
    assert f"an example of the equation {equation}" in str(refused.value)


def test_binding_names_the_equation() -> None:
    assert kind_of(CLAIMS["equation"]).binding(CLAIMS["equation"]) == "equation twice"


def payload(equation: str, **keys) -> EquationPayload:
    """Return the payload of an equation in an environment whose contract has others."""
    equations = {"twice": {"domain": {"x": "real"}, "expression": "x + x"}, "slope": SLOPE, "e": keys}
    return EquationPayload(equation=equation, equations=equations, examples=1, seed=0, replay="")


@pytest.mark.parametrize(("equation", "needing"), [("slope", "the derivative of twice"), ("e", "the array x[N]")])
def test_missing_torch_is_an_error_that_says_what_needs_it(monkeypatch, equation: str, needing: str) -> None:
    monkeypatch.setattr("pv.engines.kinds.equation.find_spec", lambda name: None)
    claimed = payload(equation, domain={"x": "real[N]"}, expression="sum(x)")
    assert KINDS["equation"].attack(claimed, None) == {
        "status": "error",
        "detail": f"{needing} needs PyTorch, which is not installed: run `pip install torch`",
    }


@pytest.mark.parametrize(("equation", "modules"), [("twice", ENGINE), ("slope", ("torch", *ENGINE))])
def test_missing_torch_is_preloaded_only_for_what_needs_it(monkeypatch, equation: str, modules) -> None:
    claim = Falsifier(equation=equation, **BASE)
    assert KINDS["equation"].preloads(CONTRACT, claim) == ENGINE
    monkeypatch.setattr("pv.engines.kinds.equation.find_spec", lambda name: None)
    assert KINDS["equation"].preloads(CONTRACT, claim) == modules
