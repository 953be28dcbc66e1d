"""Shrinking: the smallest failing example of simple properties is known by hand."""

import pytest

from pv.equations.domain import parse_domain
from pv.equations.draw import Drawer
from pv.equations.shrink import Shrinker


def shrunk(domain, fails, seed=0):
    variables = parse_domain(domain)
    drawer = Drawer(variables, seed)
    example = next(each for each in (drawer.example() for _ in range(1000)) if fails(each))
    shrinker = Shrinker(variables, fails)
    return shrinker.smallest(example), shrinker


def values(example):
    return {name: array.tolist() for name, array in example.arrays.items()}


@pytest.mark.parametrize("seed", range(5))
def test_unrelated_values_become_zero_and_axes_minimal(seed) -> None:
    domain = {"a": "real[N,V]", "b": "real 0.5..3", "y": "index of V [N]", "m": "mask[N]"}
    smallest, _ = shrunk(domain, lambda example: True, seed)
    assert values(smallest) == {"a": [[0.0, 0.0]], "b": 1.0, "y": [0], "m": [False]}
    assert smallest.sizes == {"N": 1, "V": 2}


@pytest.mark.parametrize("seed", range(5))
def test_one_needed_element_is_kept(seed) -> None:
    smallest, _ = shrunk({"a": "real[N]"}, lambda example: bool((example.arrays["a"] > 4.5).any()), seed)
    assert values(smallest) == {"a": [5.0]}


def test_index_is_renumbered_when_slices_are_removed() -> None:
    domain = {"s": "real[V] 0..9", "y": "index of V"}

    def fails(example):
        return float(example.arrays["s"][example.arrays["y"]]) > 3

    smallest, _ = shrunk(domain, fails)
    assert fails(smallest)
    assert smallest.sizes["V"] == 2
    assert sorted(smallest.arrays["s"].tolist()) == [0.0, 4.0]
