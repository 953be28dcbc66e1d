"""Jobs for the tests of adapters, and what every correct run of one has."""

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import IGNORED, Example, Job, Trainer
from pv.suites.training_loop.oracle import START, sums
from pv.suites.training_loop.run import Run

Benches = Callable[[Trainer], Bench]
Jobs = Callable[..., Job]
Ratios = Callable[[Run], list[float]]
Check = Callable[[Run], None]


def example(name: int, length: int) -> Example:
    tokens = (name, *(32 + (7 * name + 5 * i) % 16 for i in range(1, length)))
    return Example(tokens, (IGNORED, *tokens[1:]))


EQUAL = tuple(example(name, 4) for name in range(1, 9))
UNEQUAL = tuple(example(name, 2 + 3 * name % 5) for name in range(1, 9))


@pytest.fixture
def bench(tmp_path: Path) -> Benches:
    """Returns the bench of a trainer, in a directory of its own."""
    return lambda trainer: Bench(trainer, Path(tempfile.mkdtemp(dir=tmp_path)))


@pytest.fixture
def job() -> Jobs:
    """Returns a job over eight examples of equal length, or of unequal length. first: their first labels are set."""

    def make(*, unequal: bool = False, first: bool = False, **settings: Any) -> Job:
        train = UNEQUAL if unequal else EQUAL
        train = tuple(Example(row.tokens, row.tokens) for row in train) if first else train
        return Job(**{"directory": Path(), "train": train, "evaluated": EQUAL[:3]} | settings)

    return make


@pytest.fixture
def gradient_ratios() -> Ratios:
    """Returns the norm of each step's gradient of the head, divided by the norm of the token mean's gradient."""

    def ratios(run: Run) -> list[float]:
        before, quotients = START, []
        for step in run.steps:
            named = {row.name: row for row in run.job.train}
            right = sums(before, [named[name] for name in step.names])
            gradient = step.gradient["head.weight"]
            assert gradient is not None
            quotients.append(float(gradient.norm() * right.tokens / right.gradient["head.weight"].norm()))
            before = step.weights
        return quotients

    return ratios


@pytest.fixture
def assert_whole(gradient_ratios: Ratios) -> Check:
    """Asserts what every correct run of two epochs has, with evaluation and checkpoint after every step."""

    def check(run: Run) -> None:
        epoch = len(run.job.train)
        names = list(itertools.chain(*(step.names for step in run.steps)))
        assert [sorted(names[:epoch]), sorted(names[epoch:])] == [list(range(1, epoch + 1))] * 2
        assert gradient_ratios(run) == pytest.approx([1.0] * len(run.steps), rel=1e-4)
        assert run.final_step == len(run.steps)
        assert [step for step, _ in run.evaluations] == list(range(1, len(run.steps) + 1))
        assert sorted(run.checkpoints) == [step for step, _ in run.evaluations]
        assert all(torch.equal(run.weights[name], weight) for name, weight in run.steps[-1].weights.items())

    return check
