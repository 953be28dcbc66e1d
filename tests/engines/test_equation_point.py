"""An example of an equation to replay: its axes and its domain, without torch."""

import pytest

from pv.engines.encoding import encode
from pv.engines.equation_point import faults
from pv.equations.domain import parse_domain

DOMAIN = {
    "V": "size 2..8",
    "s": "logits[B,V]",
    "t": "logits[B,V]",
    "y": "index of V [B] or -100",
    "p": "prob[V]",
    "m": "mask[B]",
    "n": "int 1..3",
    "beta": "real 0.01..1",
    "least": "real 0..beta",
}
GOOD = {
    "s": [[0, 1.5]], "t": [[1, 2]], "y": [-100], "p": [0.25, 0.75], "m": [True], "n": 2, "beta": 0.5, "least": 0.5,
}  # fmt: skip

BAD = {
    "beta is 7, its domain is real 0.01..1": {"beta": 7},
    "beta is nan, its domain is real 0.01..1": {"beta": {"$float": "nan"}},
    "beta is 'half': expected a number or an array of numbers": {"beta": "half"},
    "least is 0.6, its domain is real 0..0.5": {"least": 0.6},
    "y is 2, its domain is index 0..1 or -100": {"y": [2]},
    "p does not sum to 1 along V": {"p": [0.5, 0.75]},
    "axis V has size 2 in s and 3 in t": {"t": [[1, 2, 3]]},
    "s has the shape [2], its axes are [B,V]": {"s": [1, 2]},
    "axis V has size 9 in s, its domain is 2..8": {"s": [[0] * 9], "t": [[0] * 9], "p": [1] + [0] * 8},
}


@pytest.mark.parametrize("says", BAD)
def test_fault_is_named(says) -> None:
    assert next(faults(parse_domain(DOMAIN), {**GOOD, **BAD[says]})) == says


def test_encoded_tensors_are_read_and_may_be_rounded_at_a_bound() -> None:
    torch = pytest.importorskip("torch")
    variables = parse_domain({"x": "real[N] 0.1..0.3"})
    for dtype in (torch.float32, torch.bfloat16):
        given = {"x": encode(torch.tensor([0.1, 0.3], dtype=dtype))[0]}
        assert list(faults(variables, given)) == []
    outside = {"x": encode(torch.tensor([0.31]))[0]}
    assert list(faults(variables, outside)) == ["x is 0.31, its domain is real 0.1..0.3"]
