"""An equation whose measured tolerance is no smaller than its values accepts any code, and is undecided."""

import pytest

from tests.equations.conftest import tried as tried

NEAR = {"x": "real[N] 1000..1001", "N": "size 2..6"}


def variance(expression: str = "mean(x**2, N) - mean(x, N)**2", **keys: object):
    return {"var": {"domain": NEAR, "expression": expression, "implemented_by": "var(x)", **keys}}


def test_an_equation_that_cancels_is_inconclusive(tried) -> None:
    record = tried(variance(), "var", {"var": lambda x: 0.0 * x.sum()})
    assert record["status"] == "inconclusive"
    assert record["detail"].startswith("the tolerance ±")
    assert record["detail"].endswith("examples: write it without cancellation, or give a `tolerance`")
    assert "equation_mutants" not in record


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        ("mean((x - mean(x, N))**2, N)", {}),
        ("mean(x**2, N) - mean(x, N)**2", {"tolerance": {"absolute": 1, "why": "a test"}}),
    ],
)
def test_an_equation_without_cancellation_or_with_a_tolerance_holds(tried, expression, keys) -> None:
    code = {"var": lambda x: x.double().var(correction=0)}
    assert tried(variance(expression, **keys), "var", code)["status"] == "held"


@pytest.mark.parametrize("expression", ["x - x", "sum(x) * 0"])
def test_an_equation_of_zeros_is_not_judged(tried, expression) -> None:
    zero = {"domain": {"x": "real[N]"}, "result": "real[N]" if "-" in expression else "real"}
    zero |= {"expression": expression, "implemented_by": "f(x)"}
    code = {"f": (lambda x: x - x) if "-" in expression else (lambda x: x.sum() * 0)}
    assert tried({"e": zero}, "e", code)["status"] == "held"


def test_a_mutant_of_the_code_and_a_replay_are_not_judged(tried) -> None:
    code = {"var": lambda x: 0.0 * x.sum()}
    assert tried(variance(), "var", code, stop_at_first=True)["status"] == "held"
    assert tried(variance(), "var", code, replay='{"x": [1000, 1001]}')["status"] == "held"
