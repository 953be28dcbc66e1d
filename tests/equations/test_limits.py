"""The allowed error: proportional to the effect of rounding, and strict about infinite values."""

import json
import math

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


def test_tolerance_replaces_the_measured_error_of_code_only() -> None:
    tolerance = Tolerance(relative=1e-3, absolute=0.5, why="a test")
    fixed = limits("2 * x", [4.0], Accuracy(tolerance=tolerance))
    assert float(fixed.of_code(0, torch.float32)) == pytest.approx(0.508)
    assert float(fixed.of_equation(0)) < 1e-10


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
