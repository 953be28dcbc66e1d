"""How arrays differ is said in words that name the cause."""

import pytest
import torch

from pv.equations.causes import cause, describe_difference, ratio

X = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(3, 4) ** 1.5
HOLE, LAST = X.clone(), X.clone()
HOLE[1, 2] = torch.nan
LAST[:, -1] = 0.0


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (2 * X, "it is 2 times that everywhere"),
        (-X, "it has the opposite sign everywhere"),
        (0 * X, "it is zero everywhere"),
        (X - 0.5, "it is smaller by 0.5 everywhere"),
        (X.flip(0), "it has the same values in another order along B: reversed"),
        (X.roll(1, 1), "it has the same values in another order along T: shifted by 1"),
        (X[[0, 2, 1]], "it has the same values in another order along B: [0, 2, 1]"),
        (HOLE, "it differs only at B 1 and T 2"),
        (LAST, "it differs only at T 3, the last"),
        (X * X, ""),
    ],
)
def test_the_cause_of_a_difference(found: torch.Tensor, text: str) -> None:
    assert cause(found, X, torch.full_like(X, 1e-9), ("B", "T")) == text


def test_an_array_with_one_axis_has_a_cause_too() -> None:
    assert cause(X[0].flip(0), X[0], torch.full_like(X[0], 1e-9), ("N",)).endswith("along N: reversed")
    assert cause(LAST[0], X[0], torch.full_like(X[0], 1e-9)) == "it differs only at axis 0 3, the last"


def test_named_arrays_say_which_differ_and_how_and_have_one_ratio() -> None:
    wanted = {"weight": X, "bias": X[0], "scale": X[1]}
    found = {"weight": 3 * X, "bias": 3 * X[0], "scale": X[1], "extra": X}
    says = "only in the first: extra; 2 of 3 differ: weight, bias: it is 3 times that everywhere"
    assert describe_difference(found, wanted) == says
    assert describe_difference(X, X[0]) == "shapes [3, 4] and [4]"
    assert describe_difference(X, 1.0) == describe_difference(wanted, wanted) == ""
    wanted = {"weight": X, "bias": X[0]}
    assert ratio({"weight": -2 * X, "bias": -2 * X[0]}, wanted, 1e-6) == pytest.approx(-2)
    assert ratio({"weight": 2 * X, "bias": X[0]}, wanted, 1e-6) is None
    assert ratio({}, wanted, 1e-6) == 0
