"""Drawn examples, inside their bounds and reproducible; shrunk ones, whose smallest is known by hand."""

import pytest
import torch

from pv.equations.domain import parse_domain
from pv.equations.examples import Drawer, Example, Shrinker

DOMAIN = {
    "N": "size 1..5",
    "s": "logits[N,V]",
    "y": "index of V [N] or -100",
    "z": "index of V [N]",
    "m": "mask[N]",
    "p": "prob[N,V]",
    "q": "logprob[N,V]",
    "n": "int 2..6",
    "tau": "real 0.25..20",
    "x": "real[N] n..V",
    "w": "real tau..30",
    "eps": "real 1e-6..1",
}


def drawn(dtype="float32", seed=0, count=200, domain=DOMAIN):
    drawer = Drawer(parse_domain(domain), seed, (dtype,))
    return [drawer.example() for _ in range(count)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_value_is_inside_its_domain_and_representable(dtype) -> None:
    for example in drawn(dtype):
        arrays, sizes = example.arrays, example.sizes
        assert 1 <= sizes["N"] <= 5 and 2 <= sizes["V"] <= 8
        assert arrays["s"].shape == (sizes["N"], sizes["V"]) and arrays["s"].abs().max() <= 50
        assert all(v == -100 or 0 <= v < sizes["V"] for v in arrays["y"].tolist())
        assert all(0 <= v < sizes["V"] for v in arrays["z"].tolist())
        assert arrays["m"].dtype is torch.bool
        assert float(arrays["n"]) in (2, 3, 4, 5, 6)
        assert 0.25 <= float(arrays["tau"]) <= 20 and float(arrays["tau"]) <= float(arrays["w"]) <= 30
        for name in ("s", "x", "p", "q"):
            assert torch.equal(arrays[name], arrays[name].to(getattr(torch, dtype)).double()), name
        for name in ("tau", "w"):
            assert torch.equal(arrays[name], arrays[name].float().double()), name
    assert any(float(example.arrays["tau"].bfloat16()) != float(example.arrays["tau"]) for example in drawn(dtype))


def test_equal_seeds_give_equal_examples_and_others_do_not() -> None:
    def values(seed):
        return [
            {name: array.tolist() for name, array in example.arrays.items()} for example in drawn(seed=seed, count=20)
        ]

    assert values(1) == values(1)
    assert values(1) != values(2)


def test_typical_inputs_of_faults_occur() -> None:
    examples = drawn(count=500)
    assert any((example.arrays["p"] == 0).any() for example in examples), "an outcome without mass"
    assert any((example.arrays["y"] == -100).all() for example in examples), "no index at all"
    assert any((example.arrays["y"] >= 0).all() for example in examples), "every index"
    assert any(example.arrays["s"].unique().numel() == 1 < example.arrays["s"].numel() for example in examples), "a tie"
    assert any(example.arrays["s"].abs().max() == 50 for example in examples), "an end of the range"
    assert any(example.sizes["N"] == 1 for example in examples), "the smallest size"
    ends = {float(example.arrays["tau"]) for example in examples}
    assert {0.25, 20.0, 1.0} <= ends
    assert sum(1e-6 < float(example.arrays["eps"]) < 1e-3 for example in examples) > 50, "every order of magnitude"


def shrunk(domain, fails, seed=0):
    variables = parse_domain(domain)
    drawer = Drawer(variables, seed)
    example = next(candidate for candidate in (drawer.example() for _ in range(1000)) if fails(candidate))
    shrinker = Shrinker(variables, fails)
    return shrinker.smallest(example), shrinker


def lists(example):
    return {name: array.tolist() for name, array in example.arrays.items()}


@pytest.mark.parametrize("seed", range(3))
def test_unrelated_values_become_zero_and_axes_minimal(seed) -> None:
    domain = {"a": "real[N,V]", "b": "real 0.5..3", "y": "index of V [N]", "m": "mask[N]"}
    smallest, _ = shrunk(domain, lambda example: True, seed)
    assert lists(smallest) == {"a": [[0.0, 0.0]], "b": 1.0, "y": [0], "m": [False]}
    assert smallest.sizes == {"N": 1, "V": 2}


@pytest.mark.parametrize("seed", range(3))
def test_one_needed_element_is_kept(seed) -> None:
    # The shrinker prefers whole numbers: 5 is the smallest one above 4.5.
    smallest, _ = shrunk({"a": "real[N]"}, lambda example: bool((example.arrays["a"] > 4.5).any()), seed)
    assert lists(smallest) == {"a": [5.0]}


def test_index_is_renumbered_when_slices_are_removed_and_a_size_without_array_becomes_small() -> None:
    domain = {"s": "real[V] 0..9", "y": "index of V"}

    def fails(example):
        return float(example.arrays["s"][example.arrays["y"]]) > 3

    smallest, _ = shrunk(domain, fails)
    assert fails(smallest)
    assert smallest.sizes["V"] == 2
    assert sorted(smallest.arrays["s"].tolist()) == [0.0, 4.0]
    ignored = {"s": "real[V]", "y": "index of V or -100", "p": "prob[V]", "q": "logprob[V]"}
    smallest, _ = shrunk(ignored, lambda example: int(example.arrays["y"]) == -100)
    assert (smallest.sizes["V"], int(smallest.arrays["y"])) == (2, -100)
    assert [float(smallest.arrays["p"].sum()), float(smallest.arrays["q"].exp().sum())] == pytest.approx([1, 1])
    smallest, _ = shrunk({"K": "size 1..9", "x": "real[N]"}, lambda example: example.sizes["K"] > 2)
    assert (smallest.sizes, lists(smallest)) == ({"K": 3, "N": 1}, {"x": [0.0]})


def test_shrunk_distribution_still_sums_to_one_if_only_outcomes_without_probability_are_left() -> None:
    tried = []

    def fails(example):
        tried.append(example.arrays["p"])
        return bool((example.arrays["p"] > 0).all())

    example = Example({"p": torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)}, {"V": 4})
    assert Shrinker(parse_domain({"p": "prob[V]"}), fails).smallest(example).arrays["p"].tolist() == [0.5, 0.5]
    tried.clear()
    Shrinker(parse_domain({"p": "prob[V]"}), lambda example: tried.append(example.arrays["p"])).smallest(example)
    assert all(float(array.sum()) == 1 for array in tried), tried
    logs = Example({"q": torch.full((4,), 0.25, dtype=torch.float64).log()}, {"V": 4})
    smallest = Shrinker(parse_domain({"q": "logprob[V]"}), lambda example: True).smallest(logs).arrays["q"]
    assert smallest.exp().tolist() == pytest.approx([0.5, 0.5]), "log-probabilities alone are normalised too"
