import pytest

pytest.importorskip("ignite", reason="install it with `pip install 'pv-contracts[pytorch-ignite]'`")

from pv.suites.training_loop.adapters.ignite import Ignite
from tests.suites.training_loop.conftest import Benches, Jobs, Ratios


def test_run_has_gradients_evaluations_checkpoints_and_events(
    bench: Benches, job: Jobs, gradient_ratios: Ratios
) -> None:
    run = bench(Ignite()).run(job(accumulate=2, epochs=2, eval_every=1, save_every=1))
    assert gradient_ratios(run) == pytest.approx([1.0] * 4, rel=1e-9)
    assert [step for step, _ in run.evaluations] == sorted(run.checkpoints) == [1, 2, 3, 4]
    assert run.events == ("train_begin", *("epoch_begin", "epoch_end") * 2, "train_end")


def test_run_that_is_resumed_where_an_epoch_ends_has_the_next_one(bench: Benches, job: Jobs) -> None:
    made = bench(Ignite())
    straight = made.run(job(epochs=2, save_every=1, schedule="linear"))
    again = made.resume(straight, 4)
    assert [(step.names, step.rate) for step in again.steps] == [(s.names, s.rate) for s in straight.steps[4:]]


def test_best_and_newest_checkpoints_are_those_of_their_steps(bench: Benches, job: Jobs) -> None:
    run = bench(Ignite()).run(job(epochs=2, eval_every=1, save_every=1, keep=1, best=True, rate=40.0))
    best = min(run.evaluations, key=lambda each: each[1])[0]
    assert set(run.checkpoints) == {best, 8}


def test_run_of_max_steps_or_that_is_stopped_has_as_many_steps(bench: Benches, job: Jobs) -> None:
    made = bench(Ignite())
    assert [len(made.run(job(accumulate=2, **each)).steps) for each in ({"max_steps": 3}, {"stop_at": 1})] == [3, 1]
