"""The adapter of transformers: an own trainer, callback or collator is under attack, and nothing is repaired."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pv.suites.training_loop.adapters import adapted
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.run import Run

transformers = pytest.importorskip("transformers", reason="install it with `pip install 'pv-contracts[transformers]'`")

from pv.suites.training_loop.adapters.transformers import Transformers  # noqa: E402

Benches = Callable[[Trainer], Bench]
Jobs = Callable[..., Job]
Ratios = Callable[[Run], list[float]]


class MeanOfMeans(transformers.Trainer):  # type: ignore[misc]
    """Ignores the number of items, as trainers before 4.46 did."""

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        return model(**inputs).loss / self.args.gradient_accumulation_steps


class Alternating(transformers.Trainer):  # type: ignore[misc]
    """Trains on every second example only."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return range(0, len(self.train_dataset), 2)


def test_run_has_gradients_evaluations_and_checkpoints(
    bench: Benches, job: Jobs, assert_whole: Callable[[Run], None]
) -> None:
    run = bench(Transformers()).run(job(unequal=True, accumulate=2, epochs=2, eval_every=1, save_every=1, clip=1e9))
    assert_whole(run)
    assert [row["step"] for row in run.logs if {"loss", "rate", "norm"} <= row.keys()] == [1, 2, 3, 4]
    assert run.events.count("step_end") == 4
    assert run.events[0] == "train_begin"


@pytest.mark.parametrize("tied", [True])
def test_resumed_run_ends_as_the_straight_one(bench: Benches, job: Jobs, tied: bool) -> None:
    made = bench(Transformers())
    straight = made.run(job(epochs=2, save_every=1, optimizer="adamw", rate=0.01, schedule="linear", tied=tied))
    again = made.resume(straight, 3)
    assert [step.names for step in again.steps] == [step.names for step in straight.steps[3:]]
    assert [step.rate for step in again.steps] == [step.rate for step in straight.steps[3:]]
    assert all((again.weights[name] == each).all() for name, each in straight.weights.items())
    assert again.tied == tied


def test_first_labels_are_not_counted(bench: Benches, job: Jobs, gradient_ratios: Ratios) -> None:
    run = bench(adapted(transformers.Trainer)).run(job(first=True, accumulate=2))
    assert gradient_ratios(run) == pytest.approx([1.0, 1.0], rel=1e-4)


def test_own_loss_is_under_attack(bench: Benches, job: Jobs, gradient_ratios: Ratios) -> None:
    right, wrong = (
        bench(adapted(kind)).run(job(unequal=True, accumulate=2)) for kind in (transformers.Trainer, MeanOfMeans)
    )
    assert gradient_ratios(right) == pytest.approx([1.0, 1.0], rel=1e-5)
    assert gradient_ratios(wrong) != pytest.approx([1.0, 1.0], rel=1e-2)


def test_own_sampler_is_under_attack(bench: Benches, job: Jobs) -> None:
    run = bench(adapted(Alternating)).run(job())
    assert [step.names for step in run.steps] == [(1, 3), (5, 7)]


def test_own_collator_gets_rows_of_a_dataset(bench: Benches, job: Jobs) -> None:
    seen: list[set[str]] = []

    def collator(rows: list[dict[str, list[int]]]) -> Any:
        seen.extend(set(row) for row in rows)
        return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

    adapter = Transformers(collator=collator)
    assert len(bench(adapter).run(job()).steps) == 4
    assert seen[0] == {"input_ids", "attention_mask", "labels"}
    assert "noise" in adapter.lacks
