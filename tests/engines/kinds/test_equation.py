"""Falsifiers that compare code with an equation: what they take, replay and report."""

from pathlib import Path

import pytest

from pv.contract.claims import Equation, Falsifier
from pv.contract.finding import Location
from pv.contract.model import Contract
from pv.engines.kinds import KINDS, kind_of
from pv.errors import UsageError
from tests.engines.kinds.claims import BASE, CLAIMS

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


def test_missing_torch_is_an_error_that_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr("pv.engines.kinds.equation.find_spec", lambda name: None)
    record = KINDS["equation"].attack(None, None)
    assert record["status"] == "error"
    assert "run `pip install torch`" in record["detail"]
