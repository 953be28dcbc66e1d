"""How arrays differ is said in words that name the cause."""

import pytest
import torch

from pv.equations.causes import cause, describe_difference, describe_largest_difference, difference, ratio

X = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(3, 4) ** 1.5
HOLE, LAST = X.clone(), X.clone()
HOLE[1, 2] = torch.nan
LAST[:, -1] = 0.0


@pytest.mark.parametrize(
    ("actual", "text"),
    [
        (2 * X, "all elements are multiplied by 2"),
        (-X, "all elements have the opposite sign"),
        (0 * X, "all elements are zero"),
        (1e4 * (X + 5e-10 * X.sin()), "all elements are multiplied by 10000"),
        (X - 0.5, "all elements are smaller by 0.5"),
        (X.flip(0), "the values are in a different order along B: reversed"),
        (X.roll(1, 1), "the values are in a different order along T: shifted by 1"),
        (X[[0, 2, 1]], "the values are in a different order along B: [0, 2, 1]"),
        (HOLE, "only the elements at index 1 of B and index 2 of T differ"),
        (LAST, "only the elements at index 3 (the last) of T differ"),
        (X * X, ""),
    ],
)
def test_the_cause_of_a_difference(actual: torch.Tensor, text: str) -> None:
    assert cause(actual, X, torch.full_like(X, 1e-9), ("B", "T")) == text


def test_an_array_with_one_axis_has_a_cause_too() -> None:
    assert cause(X[0].flip(0), X[0], torch.full_like(X[0], 1e-9), ("N",)).endswith("along N: reversed")
    assert (
        cause(LAST[0], X[0], torch.full_like(X[0], 1e-9)) == "only the elements at index 3 (the last) of axis 0 differ"
    )
    pairs = {
        "along axis 0: reversed": ([2.0, 1.0], [1.0, 2.0]),
        "only the elements at index 2 (the last) of axis 0 differ": ([0.0, 0.0, 7.0], [0.0, 0.0, 5.0]),
        "only the elements at index 1 (the last) of axis 0 differ": ([torch.inf, 1.0], [torch.inf, 2.0]),
        "at [1] the value is nan, expected 2": ([1.0, torch.nan, 9.0], [1.0, 2.0, 3.0]),
        "at [2] the value is 1, expected 2": ([torch.inf, torch.nan, 1.0], [torch.inf, torch.nan, 2.0]),
        "at [1] the value is -inf, expected inf": ([torch.inf, -torch.inf], [torch.inf, torch.inf]),
    }
    for says, (actual, wanted) in pairs.items():
        describe = describe_largest_difference if says.startswith("at") else describe_difference
        assert describe(torch.tensor(actual), torch.tensor(wanted)).endswith(says)
    nothing = [
        describe_difference(torch.tensor([2.0, 9.0]), torch.tensor([1.0, 2.0])),
        describe_largest_difference(X, X[0]),
    ]
    nothing += [of(torch.tensor(2.0), torch.tensor(1.0)) for of in (describe_difference, describe_largest_difference)]
    nothing += [of(X.to(torch.complex64), X) for of in (describe_difference, describe_largest_difference)]
    assert nothing == [""] * 6


def test_named_arrays_say_which_differ_and_how_and_have_one_ratio() -> None:
    wanted = {"weight": X, "bias": X[0], "scale": X[1]}
    actual = {"weight": 3 * X, "bias": 3 * X[0], "scale": X[1], "extra": X}
    says = "only in the first: extra; 2 of 3 differ: weight, bias: all elements are multiplied by 3"
    assert describe_difference(actual, wanted) == says
    assert describe_difference(X, X[0]) == "shapes [3, 4] and [4]"
    assert describe_difference({"a": X, "b": X + 0.5}, {"c": X, **wanted, "a": X, "b": X}).startswith(
        "only in the second: c, weight, bias, scale; 1 of 2 differ: b: all elements are larger by 0.5"
    )
    assert describe_difference({"a": 2 * X, "b": 3 * X, "c": 1}, {"a": X, "b": X, "c": X}) == "2 of 2 differ: a, b"
    assert describe_difference({"a": X[:1]}, {"a": X[0]}) == "1 of 1 differ: a: shapes [1, 4] and [4]"
    assert difference({"a": 3 * X, "b": None}, {"a": X, "b": 0 * X}) == pytest.approx(2 / 3)
    assert describe_difference(X, 1.0) == describe_difference(wanted, wanted) == ""
    wanted = {"weight": X, "bias": X[0]}
    assert ratio({"weight": -2 * X, "bias": -2 * X[0]}, wanted, 1e-6) == pytest.approx(-2)
    assert ratio({"weight": 2 * X, "bias": X[0]}, wanted, 1e-6) is None
    assert ratio({}, wanted, 1e-6) == 0
