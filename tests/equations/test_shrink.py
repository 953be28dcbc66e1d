"""Shrinking: the smallest failing example of simple properties is known by hand."""

import pytest
import torch

from pv.equations.domain import parse_domain
from pv.equations.draw import Drawer
from pv.equations.shrink import MAX_TRIES, Shrinker


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


@pytest.mark.parametrize("seed", range(5))
def test_result_fails_and_is_inside_its_domain(seed) -> None:
    domain = {"N": "size 2..5", "p": "prob[N,V]", "x": "real[N] 0.3..0.7", "n": "int 2..6"}

    def fails(example):
        return float(example.arrays["x"].max()) > 0.5 and float(example.arrays["n"]) > 3

    smallest, _ = shrunk(domain, fails, seed)
    assert fails(smallest)
    assert smallest.sizes["N"] == 2
    assert all(0.3 <= value <= 0.7 for value in smallest.arrays["x"].tolist())
    assert smallest.arrays["p"].sum(-1).tolist() == pytest.approx([1.0, 1.0])
    assert float(smallest.arrays["n"]) == 4.0


def test_index_is_renumbered_when_slices_are_removed() -> None:
    domain = {"s": "real[V] 0..9", "y": "index of V"}

    def fails(example):
        return float(example.arrays["s"][example.arrays["y"]]) > 3

    smallest, _ = shrunk(domain, fails)
    assert fails(smallest)
    assert smallest.sizes["V"] == 2
    assert sorted(smallest.arrays["s"].tolist()) == [0.0, 4.0]


def test_tries_are_limited_and_never_repeated() -> None:
    tried = []

    def fails(example):
        tried.append(tuple(tuple(array.flatten().tolist()) for array in example.arrays.values()))
        return bool(torch.sin(example.arrays["a"].sum() * 1e3) > 0)

    _, shrinker = shrunk({"a": "real[N,M] 0..1"}, fails)
    searched = tried[-shrinker.tries :]
    assert 0 < shrinker.tries <= MAX_TRIES
    assert len(set(searched)) == len(searched)
