"""The example in docs/examples is attacked through its adapter; what is left as a placeholder is not."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pv.suites.training_loop.adapters import adapted
from pv.suites.training_loop.adapters.handwritten import HandWritten, Placeholder
from pv.suites.training_loop.job import Job, Trainer
from tests.suites.training_loop.conftest import Benches, Check, Jobs


class Half(HandWritten):
    """An adapter as its owner leaves it after the first method."""

    def build(self, job: Job, model: Any) -> None:
        self.job = job

    def windows(self) -> Iterable[int]:
        return range(3)

    def update(self, window: int) -> None:
        pass


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[4] / "docs/examples"))
    from train_adapter import Adapter  # type: ignore[import-not-found]

    return adapted(Adapter)


def test_example_is_whole(example: Trainer, bench: Benches, job: Jobs, assert_whole: Check) -> None:
    run = bench(example).run(job(unequal=True, accumulate=2, epochs=2, eval_every=1, save_every=1))
    assert_whole(run)
    assert [row["step"] for row in run.logs if {"loss", "rate", "norm"} <= row.keys()] == [1, 2, 3, 4]


def test_resumed_example_ends_as_the_straight_run(example: Trainer, bench: Benches, job: Jobs) -> None:
    subject = bench(example)
    straight = subject.run(job(epochs=2, save_every=1, dropout=0.3, optimizer="adamw", rate=0.01, schedule="linear"))
    for step in (1, 4, 7):
        again = subject.resume(straight, step)
        assert [entry.names for entry in again.steps] == [entry.names for entry in straight.steps[step:]]
        assert all((again.weights[name] == weight).all() for name, weight in straight.weights.items())


@pytest.mark.parametrize(("method", "settings"), [("evaluate", {"eval_every": 1}), ("save", {"save_every": 1})])
def test_placeholder_is_named_where_a_job_needs_it(job: Jobs, method: str, settings: dict[str, int]) -> None:
    assert Half().run(job()).final_step == 3
    with pytest.raises(Placeholder, match=rf"Half.{method}\(\) is a placeholder"):
        Half().run(job(**settings))
