from unittest import SkipTest

import pytest

pytest.importorskip("fastai", reason="install it with `pip install 'pv-contracts[fastai]'`")

from pv.suites.training_loop.adapters.fastai import Fastai
from tests.suites.training_loop.conftest import Benches, Jobs, Ratios


def test_run_has_gradients_evaluations_checkpoints_and_events(
    bench: Benches, job: Jobs, gradient_ratios: Ratios
) -> None:
    run = bench(Fastai()).run(job(accumulate=2, epochs=2, eval_every=1, save_every=1))
    assert gradient_ratios(run) == pytest.approx([1.0] * 4, rel=1e-6)
    assert [step for step, _ in run.evaluations] == sorted(run.checkpoints) == [2, 4]
    assert run.events == ("train_begin", *("epoch_begin", "epoch_end") * 2, "train_end")


def test_resumed_run_has_the_epochs_that_are_left_with_their_rates(bench: Benches, job: Jobs) -> None:
    made = bench(Fastai())
    straight = made.run(job(epochs=2, save_every=1, schedule="linear", warmup=2))
    again = made.resume(straight, 4)
    assert [step.rate for step in again.steps] == [step.rate for step in straight.steps[4:]]
    assert [step.rate for step in straight.steps[:3]] == pytest.approx([0.0, 0.25, 0.5])


def test_run_stops_after_the_step_that_a_callback_names(bench: Benches, job: Jobs) -> None:
    assert len(bench(Fastai()).run(job(accumulate=2, epochs=2, stop_at=1)).steps) == 1


def test_number_of_steps_cannot_be_asked_for(bench: Benches, job: Jobs) -> None:
    with pytest.raises(SkipTest, match="takes a number of epochs"):
        bench(Fastai()).run(job(max_steps=3))
