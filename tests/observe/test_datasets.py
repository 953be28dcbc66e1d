"""The names of random generators in a trace."""

import random

import pytest

pytest.importorskip("torch", reason="the observer needs torch")

from pv.observe.datasets import generator_states

GLOBAL = random.Random(0)


class Noise:
    def __init__(self) -> None:
        self.draws = random.Random(1)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return GLOBAL.random() + self.draws.gauss(0, 1)


def test_generators_are_named_by_their_attribute_or_variable() -> None:
    assert generator_states(Noise()).keys() - {"random", "torch", "numpy.random"} == {"GLOBAL", "Noise.draws"}
