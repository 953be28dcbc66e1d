"""dtypes, precision and tolerance, seen by attacking code that computes in different dtypes."""

import json

import pytest
import torch

SOFTMAX = {
    "domain": {"x": "real[V] 0.3..0.7"},
    "result": "real[V]",
    "expression": "exp(x) / sum(exp(x))",
    "implemented_by": "f(x)",
}
NARROW = ["bfloat16", "float16"]


def equation(**more):
    return {"e": {**SOFTMAX, **more}}


def in_float32(x):
    return x.float().softmax(-1)


def in_its_own_type(x):
    return x.exp() / x.exp().sum()  # each operation is rounded


def rounded_at_the_end(x):
    return x.float().softmax(-1).to(x.dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", *NARROW])
def test_code_gets_values_of_the_dtype_inside_the_bounds(dtype, tried) -> None:
    given = []

    def spy(x):
        given.append(x)
        return in_float32(x)

    assert tried(equation(dtypes=[dtype]), "e", {"f": spy})["status"] == "held"
    assert {str(x.dtype) for x in given} == {f"torch.{dtype}"}
    assert all(0.3 <= float(v) <= 0.7 for x in given for v in x.double())
    assert len({float(v) for x in given for v in x}) > 20


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("code", [in_float32, rounded_at_the_end])
def test_code_may_compute_in_float32_for_narrow_dtypes(code, dtype, tried) -> None:
    assert tried(equation(dtypes=[dtype]), "e", {"f": code})["status"] == "held"


@pytest.mark.parametrize("dtype", NARROW)
def test_code_may_compute_in_a_narrow_dtype_only_with_precision_input(dtype, tried) -> None:
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


TOLERANCE = {"relative": 1e-3, "absolute": 0, "why": "a table of ten bits"}


def test_tolerance_replaces_the_measured_error(tried) -> None:
    def off_by(share):
        return {"f": lambda x: in_float32(x) * (1 + share)}

    assert tried(equation(), "e", off_by(5e-4))["status"] == "refuted"
    assert tried(equation(tolerance=TOLERANCE), "e", off_by(5e-4))["status"] == "held"
    record = tried(equation(tolerance=TOLERANCE), "e", off_by(5e-3))
    assert record["status"] == "refuted"
    assert "(tolerance ±0.0005" in record["error"]
