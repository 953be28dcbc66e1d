"""dtypes, precision and tolerance, seen by attacking code that computes in different dtypes, and infinite values."""

import json

import numpy
import pytest
import torch

from pv.equations.tolerance import SLACK, allowed

SOFTMAX = {"domain": {"x": "real[V] 0.3..0.7"}, "result": "real[V]", "expression": "exp(x) / sum(exp(x))"}
NARROW = ["bfloat16", "float16"]


def equation(**more):
    return {"e": {**SOFTMAX, "implemented_by": "f(x)", **more}}


def in_float32(x):
    return x.float().softmax(-1)


def in_its_own_type(x):
    return x.exp() / x.exp().sum()  # each operation is rounded


@pytest.mark.parametrize("dtype", ["float64", "float32", *NARROW])
def test_code_gets_values_of_the_dtype_inside_the_bounds(dtype, tried) -> None:
    inputs = []

    def spy(x):
        inputs.append(x)
        return in_float32(x)

    assert tried(equation(dtypes=[dtype]), "e", {"f": spy}, examples=100)["status"] == "held"
    assert {str(x.dtype) for x in inputs} == {f"torch.{dtype}"}
    assert all(0.3 <= float(v) <= 0.7 for x in inputs for v in x.double())
    assert len({float(v) for x in inputs for v in x}) > 20


@pytest.mark.parametrize("dtype", NARROW)
def test_code_may_round_its_result_and_compute_in_a_narrow_dtype_only_with_precision_input(dtype, tried) -> None:
    assert tried(equation(dtypes=[dtype]), "e", {"f": lambda x: in_float32(x).to(x.dtype)})["status"] == "held"
    assert tried(equation(dtypes=[dtype]), "e", {"f": in_its_own_type})["status"] == "refuted"
    assert tried(equation(dtypes=[dtype], precision="input"), "e", {"f": in_its_own_type})["status"] == "held"


def test_precision_input_of_float64_refutes_float32_code(tried) -> None:
    wide = equation(dtypes=["float64"], precision="input")
    assert tried(wide, "e", {"f": in_its_own_type})["status"] == "held"
    record = tried(wide, "e", {"f": in_float32})
    assert record["status"] == "refuted"
    assert record["inputs"]["x"].dtype is torch.float64


@pytest.mark.parametrize("dtype", NARROW)
def test_fault_of_one_dtype_is_shown_and_replayed_in_that_dtype(dtype, tried) -> None:
    def wrong(x):
        return in_float32(x) * (1 if x.dtype is torch.float32 else 1.01)

    equations = equation(dtypes=["float32", dtype])
    record = tried(equations, "e", {"f": wrong})
    assert record["status"] == "refuted"
    assert str(record["inputs"]["x"].dtype) == f"torch.{dtype}"
    again = tried(equations, "e", {"f": wrong}, replay=json.dumps(record["arguments"]))
    assert (again["status"], again["error"], again["arguments"]) == ("refuted", record["error"], record["arguments"])


def test_allowed_error_has_a_part_of_the_spread_of_the_element_and_of_the_largest_one() -> None:
    unit, inf = 2.0**-24, float("inf")
    runs = torch.tensor([[2.0, 0.0, inf, 1.0], [2.0 + unit, 0.0, inf, torch.nan]], dtype=torch.float64)
    value = torch.tensor([2.0, 0.0, inf, 1.0], dtype=torch.float64)
    largest = 1e-3 * unit * 2.0
    expected = [SLACK * (unit + 2.0 * unit + largest), SLACK * largest, SLACK * largest, inf]
    assert allowed(runs, value, unit).tolist() == pytest.approx(expected, rel=1e-9)
    assert allowed(runs[:, 1:2], value[1:2], unit).tolist() == [1e-37]
    assert allowed(runs[:, :0], value[:0], unit).tolist() == []


TOLERANCE = {"relative": 1e-3, "absolute": 0, "why": "a table of ten bits"}


def test_tolerance_replaces_the_measured_error(tried) -> None:
    def off_by(share):
        return {"f": lambda x: in_float32(x) * (1 + share)}

    assert tried(equation(), "e", off_by(5e-4))["status"] == "refuted"
    assert tried(equation(tolerance=TOLERANCE), "e", off_by(5e-4))["status"] == "held"
    record = tried(equation(tolerance=TOLERANCE), "e", off_by(5e-3))
    assert record["status"] == "refuted"
    assert "(tolerance ±0.0005" in record["error"]


def count(expression, **keys):
    domain = {"steps": "int 50000..100000", "batch": "int 2048..4096", "V": "size 2..4", **keys}
    return {"tokens": {"domain": domain, "expression": expression, "implemented_by": "tokens(steps, batch)"}}


@pytest.mark.parametrize(
    ("expression", "form"),
    [
        ("steps * batch", torch.tensor),
        ("where(steps > 0, 1, -1) * maximum(steps, 0) * batch**1", numpy.int32),
        ("steps * batch * 1**steps", int),
    ],
)
def test_integers_of_an_equation_of_whole_numbers_are_exact(tried, form, expression) -> None:
    right = tried(count(expression), "tokens", {"tokens": lambda steps, batch: form(steps * batch)})
    wrong = tried(count(expression), "tokens", {"tokens": lambda steps, batch: form(steps * batch + 1)})
    assert (right["status"], wrong["status"]) == ("held", "refuted")


@pytest.mark.parametrize(
    ("expression", "returned"),
    [
        ("steps * batch", float),
        ("2.0 * steps * batch / 2", int),
        ("exp(log(steps) + log(batch))", int),
        ("steps * batch / 1", int),
        ("steps * batch + 0 * pi", int),
        ("steps * batch + 0 * batch ** -1", int),
        ("steps * batch + 0 * batch ** lag", int),
    ],
)
def test_results_that_may_be_rounded_keep_the_measured_error(tried, expression, returned) -> None:
    code = {"tokens": lambda steps, batch: returned(torch.tensor(steps, dtype=torch.float32) * batch)}
    assert tried(count(expression, lag="int -2..2"), "tokens", code)["status"] == "held"


def test_tolerance_and_real_variables_keep_integers_from_being_exact(tried) -> None:
    near = {"tokens": lambda steps, batch: steps * batch + 1}
    tolerant = count("steps * batch")
    tolerant["tokens"]["tolerance"] = {"absolute": 1, "why": "a test"}
    assert tried(tolerant, "tokens", near)["status"] == "held"
    real = count("steps * batch * where(r > 0, 1, 2)", r="real 1..2")
    assert tried(real, "tokens", near)["status"] == "held"


def test_finite_result_is_refuted_where_the_equation_is_infinite(tried) -> None:
    log = {
        "domain": {"x": "real[N] 0..5"},
        "result": "real[N]",
        "expression": "log(x)",
        "implemented_by": "logarithm(x)",
        "tolerance": {"relative": 1e-3, "why": "a test"},
    }
    near = {"logarithm": lambda x: torch.where(x == 0, 5.0, x.log())}
    record = tried({"e": log}, "e", near, examples=100)
    assert record["status"] == "refuted"
    assert record["error"].startswith("the code of logarithm returned 5 at [0], the equation gives -inf")
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

    # In the first row any result is accepted, in the second only the logarithm.
    assert trial(-torch.inf, 0.0) == trial(-17.0, 0.0) == "held"
    assert trial(-torch.inf, 1e-3) == trial(-17.0, 1e-3) == trial(-17.0, -torch.inf) == "refuted"
