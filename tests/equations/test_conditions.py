"""Conditions of a domain and invariants, on given examples."""

import json

import pytest
import torch
from torch.nn import functional as F

from pv.equations.examples import Example
from pv.equations.invariants import broken_invariants
from pv.equations.parse import parse_equations
from pv.equations.tensors import F64


def equation_of(**keys):
    definitions, problems = parse_equations({"e": {"domain": {"x": "real[N]"}, "expression": "sum(x, N)", **keys}})
    assert problems == []
    return definitions["e"]


def example(*values):
    return Example({"x": torch.tensor(values, dtype=F64)}, {"N": len(values)})


INVARIANTS = {
    "e(x) == sum(x, N)": True,
    "e(x) >= 0": True,
    "x > 0": False,
    "x >= 0.1 + 0.2": True,  # equal but for one rounding
    "x != 0.1 + 0.2": True,  # exactly
    "x == 0.3000001": False,
    "x > 0.1 + 0.2": True,  # unless both sides are equal everywhere
    "x <= 0.3 < 0.1": False,
    "y = 0.1 + 0.2\nx >= y": True,
    "x == (1e8 + 0.3) - 1e8": True,  # as far as the larger numbers are rounded
    "not x < 0.1 + 0.2": False,  # only a plain comparison holds within rounding
}


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_comparisons_hold_within_rounding(invariant) -> None:
    equation = equation_of(invariants=[invariant])
    values = (0.0,) if invariant == "x > 0" else (0.3,)
    assert (list(broken_invariants(equation, example(*values))) == []) is INVARIANTS[invariant]


def test_every_broken_invariant_is_shown_with_its_sides() -> None:
    wrong = {"e(x) > 100": ": its sides are 3 and 100", "x < 1.5": ": its sides are 2 and 1.5", "not e(x) > 0": ""}
    equation = equation_of(invariants=["e(x) > 0", *wrong])
    expected = [f"the invariant `{text}` of e does not hold here{sides}" for text, sides in wrong.items()]
    assert list(broken_invariants(equation, example(1.0, 2.0))) == expected


def test_invariant_holds_row_by_row_within_rounding(tried) -> None:
    """Of two rows that cancel one may come out a rounding below 0, beside one that is far above."""
    divergence = {
        "domain": {"s": "logits[N,V]", "t": "logits[N,V]"},
        "result": "real[N]",
        "expression": "sum(softmax(t, V) * (log_softmax(t, V) - log_softmax(s, V)), V)",
        "implemented_by": "kl(s, t)",
        "invariants": ["divergence(s, t) >= 0"],
    }

    def kl(s, t):
        return F.kl_div(s.log_softmax(-1), t.log_softmax(-1), log_target=True, reduction="none").sum(-1)

    # In the first row softmax has one peak, so its divergence is 0 but for rounding; in the second it is larger.
    peaks = {"s": [37.0, 0.0, 0.0, 0.0, 0.0, 0.0], "t": [38.0, 0.0, 0.0, 0.0, 0.0, 1.0]}
    tensors = {k: {"$tensor": {"dtype": "float32", "shape": [2, 3], "data": v}} for k, v in peaks.items()}
    assert tried({"divergence": divergence}, "divergence", {"kl": kl}, replay=json.dumps(tensors))["status"] == "held"
    wrong = {**divergence, "invariants": ["divergence(s, t) > 0.01"]}
    record = tried({"divergence": wrong}, "divergence", {"kl": kl})
    assert record["error"].startswith("the invariant `divergence(s, t) > 0.01`")
