"""The box of a harness: its size is the number of its points, and a precondition is no program."""

from dataclasses import replace
from itertools import product

import pytest

from pv.contract.harness_bounds import Bound, engines, parse_bound, parse_box
from pv.contract.model import Harness
from tests.results.handmade import HERE


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0..3", [0, 1, 2, 3]),
        ("2..4", [2, 3, 4]),
        ("3..3", [3]),
        ("-2..0", [0, -1, -2]),
        ("-3..-2", [-2, -3]),
        ("-2..3", [0, 1, -1, 2, -2, 3]),
        ("5..4", []),
        ("bool", [False, True]),
        ("list of bool, at most 1", [[], [False], [True]]),
    ],
)
def test_values_of_a_bound_start_nearest_to_zero_and_match_its_size(text: str, values: list[object]) -> None:
    assert list(parse_bound(text).values()) == values
    assert parse_bound(text).size == len(values)
    assert parse_bound(text).empty == (values == [])
    assert all(parse_bound(text).contains(value) for value in values)


@pytest.mark.parametrize("text", ["0..3", "-3..-2", "5..4", "list of int 0..1, at most 2", "list of bool, at most 1"])
def test_the_condition_of_a_bound_is_true_for_exactly_its_values(text: str) -> None:
    bound = parse_bound(text)
    items = (False, True) if bound.boolean else range(-5, 7)
    lists = (list(values) for length in range(4) for values in product(items, repeat=length))
    for value in items if bound.most is None else lists:
        assert eval(bound.condition("x"), {"x": value}) == bound.contains(value), value


@pytest.mark.parametrize("value", [-1, 10, 3.0, True, "3", None, [3]])
def test_a_bound_admits_nothing_of_another_type_or_size(value: object) -> None:
    assert not Bound(0, 9).contains(value)


@pytest.mark.parametrize("text", ["", "0..", "0...9", "int 0..9x", "list of 0..9", "0..9, at most 3"])
def test_invalid_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid bound"):
        parse_bound(text)


def test_a_box_is_the_product_of_its_bounds_and_requires_leaves_points_out() -> None:
    small = parse_box(
        {"a": "0..2", "b": "bool", "c": "list of int 0..1, at most 1"}, "a > 0 and (len(c) == 1 if not b else a or b)"
    )
    points = list(small.points())
    assert small.size == len(points) == 18
    assert points[:4] == [
        {"a": 0, "b": False, "c": []},
        {"a": 0, "b": False, "c": [0]},
        {"a": 0, "b": False, "c": [1]},
        {"a": 0, "b": True, "c": []},
    ]
    assert sum(map(small.admits, points)) == 10


@pytest.mark.parametrize(
    "requires",
    [
        "a < 3 and __import__('os')",
        "(lambda: 1)()",
        "a > 0 if (b := 3) else 0",
        "z > 0",
        "a ** a > 0",
        "a >",
        "not " * 5000 + "a",
        "(" * 500 + "a" + ")" * 500,
        "a > 3  # first\nand a < 8",
        'a >= 0 # """; print("executed"); """',
        "len(xs * 100000000000) > 0",
        "len((a > 0 and xs + xs) * 100000000000) > 0",
        "len(100000000000 * max(xs, xs)) > 0",
        "len((1 if a else sum(xs, xs)) * 100000000000) > 0",
    ],
)
def test_a_precondition_compares_bounds_and_does_nothing_else(requires: str) -> None:
    refused = (
        r"unknown bound|unsupported syntax|unknown function|invalid condition|too long|multiplication of a list|comment"
    )
    with pytest.raises(ValueError, match=refused):
        parse_box({"a": "0..9", "xs": "list of bool, at most 2"}, requires)


@pytest.mark.parametrize(
    "requires", ["2 * len(xs) > a", "(a if xs else 0) * sum(xs)", "(xs == xs) * a", "(not xs) * a == 0"]
)
def test_a_precondition_multiplies_numbers(requires: str) -> None:
    assert parse_box({"a": "0..9", "xs": "list of bool, at most 2"}, requires).admits({"a": 1, "xs": [True]})


def test_a_small_box_is_enumerated_and_both_engines_run_if_asked() -> None:
    small, large = (parse_box({"n": text}, "") for text in ("0..9", f"0..{1 << 40}"))
    assert [engines(asked, small) for asked in ("", "symbolic", "both")] == [
        ("exhaustive",),
        ("symbolic",),
        ("exhaustive", "symbolic"),
    ]
    assert engines("", large) == ("symbolic",)
    harness = Harness(id="H", rule="", if_fails="", location=HERE, limit_s=9)
    assert [replace(harness, engine=name).whole_limit_s for name in ("symbolic", "both")] == [9, 18]
