"""The attack of an equation: an example to replay, mutants, memory layouts, and tolerances that accept anything."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from pv.engines.encoding import encode
from pv.engines.equation.point import faults
from pv.equations.domain import parse_domain
from tests.equations.conftest import tried as tried

INVALID = yaml.safe_load((Path(__file__).parent / "invalid_examples.yaml").read_text())
DOMAIN, GOOD, BAD, FREE = (INVALID[key] for key in ("domain", "example", "arrays", "sizes"))


@pytest.mark.parametrize("says", BAD)
def test_fault_is_named(says) -> None:
    assert next(faults(parse_domain(DOMAIN), {**GOOD, **BAD[says]})) == says


@pytest.mark.parametrize("says", FREE)
def test_fault_of_a_size_without_array_is_named(says) -> None:
    variables = parse_domain({"K": "size 1..4", "x": "real[V]", "n": "int 1..K", "i": "index of N"})
    good = {"K": 3, "x": [0, 1], "n": 3, "i": 2, "N": 3}
    assert list(faults(variables, good)) == []
    assert next(faults(variables, {**good, **FREE[says]})) == says


def test_encoded_tensors_are_read_and_may_be_rounded_at_a_bound() -> None:
    variables = parse_domain({"x": "real[N] 0.1..0.3"})
    for dtype in (torch.float32, torch.bfloat16):
        values = {"x": encode(torch.tensor([0.1, 0.3], dtype=dtype))[0]}
        assert list(faults(variables, values)) == []
    outside = {"x": encode(torch.tensor([0.31]))[0]}
    assert list(faults(variables, outside)) == ["x is 0.31, its domain is real 0.1..0.3"]


def test_infinite_value_does_not_hide_other_errors(tried) -> None:
    equation = {"domain": {"x": "real[N] 1..2"}, "result": "real[N]", "expression": "where(x > 1.5, inf, x)"}
    equations = {"e": {**equation, "implemented_by": "f(x)"}}
    right = tried(equations, "e", {"f": lambda x: torch.where(x > 1.5, torch.inf, x)})
    assert right["status"] == "held"
    assert {mutant["after"] for mutant in right["equation_mutants"]["survivors"]} <= {"x >= 1.5"}
    assert tried(equations, "e", {"f": lambda x: x})["status"] == "refuted"
    assert tried(equations, "e", {"f": lambda x: torch.where(x > 1.5, torch.inf, 2 * x)})["status"] == "refuted"


LAYOUT = {
    "e": {
        "domain": {"x": "real[N,M]", "p": "prob[M]", "n": "int 1..3"},
        "result": "real[N,M]",
        "expression": "x * p + n",
        "implemented_by": "f(x, p, n)",
    }
}


def viewed(x, p, n):
    return (x.view(-1).view(x.shape)) * p + n


def written(x, p, n):
    x = x.clone() if x.is_contiguous() else x
    return x.mul_(p).add_(n)


@pytest.mark.parametrize(
    ("check", "code", "says"),
    [
        ("noncontiguous_inputs", viewed, "non-contiguous inputs the code raised RuntimeError: view size"),
        ("expanded_inputs", written, "expanded inputs the code "),
    ],
)
def test_code_that_needs_another_layout_of_memory_is_refuted(tried, check, code, says) -> None:
    assert tried(LAYOUT, "e", {"f": code})["status"] == "held"
    equation = {**LAYOUT["e"], "checks": [check]}
    record = tried({"e": equation}, "e", {"f": code})
    assert (record["status"], record["error"].startswith(f"with {says}")) == ("refuted", True)
    different = {**equation, "requires": "any(max(x, N) > min(x, N), M)"}  # slices that are not all equal
    assert (tried({"e": different}, "e", {"f": code})["status"] == "held") == (check == "expanded_inputs")


NEAR = {"x": "real[N] 1000..1001", "N": "size 2..6"}


def variance(expression: str = "mean(x**2, N) - mean(x, N)**2", **keys: object):
    return {"var": {"domain": NEAR, "expression": expression, "implemented_by": "var(x)", **keys}}


def test_an_equation_that_cancels_is_inconclusive(tried) -> None:
    code = {"var": lambda x: 0.0 * x.sum()}
    record = tried(variance(), "var", code)
    assert record["status"] == "inconclusive"
    assert record["detail"].startswith("the tolerance ±")
    assert record["detail"].endswith("examples: avoid cancellation in the equation, or give a `tolerance`")
    assert "equation_mutants" not in record
    # On a mutant and on a replay the tolerance is not judged: the clean code has shown it.
    for single in ({"stop_at_first": True}, {"replay": '{"x": [1000, 1001]}'}):  # on a mutant of the code
        assert tried(variance(), "var", code, **single)["status"] == "held"


def test_an_equation_without_cancellation_or_with_a_tolerance_holds(tried) -> None:
    code = {"var": lambda x: x.double().var(correction=0)}
    for settings in ({"expression": "mean((x - mean(x, N))**2, N)"}, {"tolerance": {"absolute": 1, "why": "a test"}}):
        assert tried(variance(**settings), "var", code)["status"] == "held"


@pytest.mark.parametrize(
    ("result", "text", "f"),
    [("real[N]", "x - x", lambda x: x - x), ("real", "sum(x) * 0", lambda x: x.sum() * 0)],
)
def test_an_equation_of_zeros_is_not_judged(tried, result, text, f) -> None:
    zero = {"domain": {"x": "real[N]"}, "result": result, "expression": text, "implemented_by": "f(x)"}
    assert tried({"e": zero}, "e", {"f": f})["status"] == "held"


TOP = {
    "least": {
        "domain": {"K": "size 1..4", "x": "real[V]", "V": "size 4..8"},
        "result": "real",
        "expression": "min(x[top(x, V, K)], K)",
        "implemented_by": "least(x, K)",
    },
    "hot": {"domain": {"i": "index of N"}, "result": "real[N]", "expression": "one_hot(i)", "implemented_by": "f(i,N)"},
}


@pytest.mark.parametrize(
    ("name", "code", "size"),
    [
        ("least", {"least": lambda x, k: x.topk(2 if k == 3 else k).values[-1]}, "K"),
        ("hot", {"f": lambda i, n: torch.nn.functional.one_hot(torch.tensor(i), n) * (2 if n == 3 else 1)}, "N"),
    ],
)
def test_a_size_without_array_is_part_of_the_counterexample_and_of_its_replay(tried, name, code, size) -> None:
    record = tried(TOP, name, code)
    assert (record["status"], record["arguments"][size], record["exact"]) == ("refuted", 3, True)
    repeated = tried(TOP, name, code, replay=json.dumps(record["arguments"]))
    assert [repeated[key] for key in ("status", "error", "call")] == [
        record[key] for key in ("status", "error", "call")
    ]
    other = json.dumps({**record["arguments"], size: 2})
    assert tried(TOP, name, code, replay=other)["status"] == "held"
