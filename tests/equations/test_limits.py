"""The allowed error: proportional to the effect of rounding, and strict about infinite values."""

import json
import math

import numpy
import pytest
import torch

from pv.equations.accuracy import UNITS, Accuracy, Tolerance
from pv.equations.draw import Example
from pv.equations.limits import SLACK, Limits, allowed
from pv.equations.parse import parse_equations
from pv.equations.system import System
from pv.equations.tensor_functions import F64

UNIT = UNITS["float32"]


def limits(expression, x, accuracy=None):
    definitions, problems = parse_equations(
        {"e": {"domain": {"x": "real[N]"}, "result": "real[N]", "expression": expression}}
    )
    assert problems == []
    equation = System(definitions).claims["e"].equation
    example = Example({"x": torch.tensor(x, dtype=F64)}, {"N": len(x)})
    return Limits(equation, accuracy or Accuracy(), example, equation.exact(example))


def test_one_rounding_is_allowed_slack_times() -> None:
    (limit,) = limits("2 * x", [1.0]).of_code(0, torch.float32).tolist()
    assert SLACK * 2 * 2 * UNIT <= limit <= 1.01 * SLACK * 2 * 2 * UNIT


def test_cancellation_allows_more_than_its_result_suggests() -> None:
    plain = limits("x", [1e-6]).of_code(0, torch.float32)
    cancelled = limits("(x + 1) - 1", [1e-6]).of_code(0, torch.float32)
    assert float(cancelled) > 1e5 * float(plain)


def test_infinite_value_allows_no_error_and_does_not_loosen_others() -> None:
    together = limits("where(x > 1, inf, x)", [2.0, 0.5]).of_code(0, torch.float32)
    alone = limits("where(x > 1, inf, x)", [0.5]).of_code(0, torch.float32)
    assert together[0] < 1e-4
    assert float(together[1]) == pytest.approx(float(alone[0]))


def test_any_result_is_allowed_where_rounding_may_leave_no_number() -> None:
    runs = torch.tensor([[-17.0, 1.0], [math.nan, 1.0]], dtype=F64)
    limit = allowed(runs, torch.tensor([-17.0, 1.0], dtype=F64), UNIT)
    assert limit[0] == math.inf
    assert limit[1] < 1e-4


def test_narrow_results_are_allowed_their_own_rounding() -> None:
    measured = limits("x", [1.0])
    wide, narrow = (float(measured.of_code(0, dtype)) for dtype in (torch.float32, torch.bfloat16))
    assert narrow - wide == pytest.approx(2.0**-8, rel=1e-6)
    assert float(measured.of_code(0, torch.float64)) == wide


def test_other_equations_are_held_to_float64() -> None:
    measured = limits("2 * x", [1.0])
    ratio = float(measured.of_code(0, torch.float32)) / float(measured.of_equation(0))
    assert ratio == pytest.approx(UNITS["float32"] / UNITS["float64"], rel=1e-3)


def count(expression, **keys):
    domain = {"steps": "int 50000..100000", "batch": "int 2048..4096", **keys}
    return {"tokens": {"domain": domain, "expression": expression, "implemented_by": "tokens(steps, batch)"}}


@pytest.mark.parametrize("form", [lambda n: n, torch.tensor, numpy.int32])
@pytest.mark.parametrize(
    "expression", ["steps * batch", "maximum(steps, 0) * batch**1", "where(steps > 0, 1, -1) * steps * batch"]
)
def test_integers_of_an_equation_of_whole_numbers_are_exact(tried, form, expression) -> None:
    right = tried(count(expression), "tokens", {"tokens": lambda steps, batch: form(steps * batch)})
    wrong = tried(count(expression), "tokens", {"tokens": lambda steps, batch: form(steps * batch + 1)})
    assert (right["status"], wrong["status"]) == ("held", "refuted")


@pytest.mark.parametrize(
    ("expression", "returned"),
    [("steps * batch", float), ("2.0 * steps * batch / 2", int), ("exp(log(steps) + log(batch))", int)],
)
def test_results_that_may_be_rounded_keep_the_measured_error(tried, expression, returned) -> None:
    code = {"tokens": lambda steps, batch: returned(torch.tensor(steps, dtype=torch.float32) * batch)}
    assert tried(count(expression), "tokens", code)["status"] == "held"


def test_tolerance_and_real_variables_keep_integers_from_being_exact(tried) -> None:
    near = {"tokens": lambda steps, batch: steps * batch + 1}
    tolerant = count("steps * batch")
    tolerant["tokens"]["tolerance"] = {"absolute": 1, "why": "a test"}
    assert tried(tolerant, "tokens", near)["status"] == "held"
    real = count("steps * batch * where(r > 0, 1, 2)", r="real 1..2")
    assert tried(real, "tokens", near)["status"] == "held"


def test_tolerance_replaces_the_measured_error_of_code_only() -> None:
    tolerance = Tolerance(relative=1e-3, absolute=0.5, why="a test")
    fixed = limits("2 * x", [4.0], Accuracy(tolerance=tolerance))
    assert float(fixed.of_code(0, torch.float32)) == pytest.approx(0.508)
    assert float(fixed.of_equation(0)) < 1e-10


@pytest.mark.parametrize(
    "accuracy",
    [Accuracy(tolerance=Tolerance(relative=relative, absolute=0.5, why="a test")) for relative in (0.0, 1e-3)]
    + [Accuracy()],
)
@pytest.mark.parametrize("returned", [torch.float32, torch.bfloat16, torch.float16])
def test_infinite_value_allows_no_other_result_under_any_tolerance(accuracy, returned) -> None:
    limit = limits("where(x > 1, -inf, x)", [2.0, 0.5], accuracy).of_code(0, returned)
    assert limit.max() <= 0.501


def test_finite_result_is_refuted_where_the_equation_is_infinite(tried) -> None:
    log = {
        "domain": {"x": "real[N] 0..5"},
        "result": "real[N]",
        "expression": "log(x)",
        "implemented_by": "logarithm(x)",
        "tolerance": {"relative": 1e-3, "why": "a test"},
    }
    record = tried({"e": log}, "e", {"logarithm": lambda x: torch.where(x == 0, 5.0, x.log())})
    assert record["status"] == "refuted"
    assert record["error"].startswith("Refuted: the code of logarithm returned 5 at [0], the equation gives -inf")
    assert tried({"e": log}, "e", {"logarithm": torch.log})["status"] == "held"


def test_any_result_holds_where_rounding_may_leave_no_number(tried) -> None:
    """In float32 the first row sums to 1 or to a rounding less; of the second the logarithm is plain."""
    rest = {
        "domain": {"p": "real[N,M] 0..0.5", "N": "size 2..2", "M": "size 2..2"},
        "result": "real[N]",
        "requires": "all(sum(p, M) < 1, N)",
        "expression": "log(1 - sum(p, M))",
        "implemented_by": "rest(p)",
    }
    rows = {"p": {"$tensor": {"dtype": "float32", "shape": [2, 2], "data": [0.5, 0.5 - 2**-25, 0.25, 0.25]}}}

    def trial(first, second):
        code = {"rest": lambda p: torch.stack([torch.tensor(first), (1 - p[1].sum()).log() + second])}
        return tried({"rest": rest}, "rest", code, replay=json.dumps(rows))["status"]

    assert trial(-torch.inf, 0.0) == trial(-17.0, 0.0) == "held"
    assert trial(-torch.inf, 1e-3) == trial(-17.0, 1e-3) == trial(-17.0, -torch.inf) == "refuted"
