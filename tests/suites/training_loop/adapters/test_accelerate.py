from collections.abc import Callable

import pytest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.run import Run

pytest.importorskip("accelerate", reason="install it with `pip install 'pv-contracts[accelerate]'`")

from pv.suites.training_loop.adapters.accelerate import Accelerate, StatefulAccelerate, TokensAccelerate

Benches = Callable[[Trainer], Bench]
Jobs = Callable[..., Job]


@pytest.fixture(params=[Accelerate, TokensAccelerate, StatefulAccelerate])
def trainer(request: pytest.FixtureRequest) -> Trainer:
    if request.param is StatefulAccelerate:
        pytest.importorskip("torchdata", reason="install it with `pip install 'pv-contracts[accelerate]'`")
    made: Trainer = request.param()
    return made


def test_run_has_gradients_evaluations_and_checkpoints(
    trainer: Trainer, bench: Benches, job: Jobs, assert_whole: Callable[[Run], None]
) -> None:
    assert_whole(bench(trainer).run(job(accumulate=2, epochs=2, eval_every=1, save_every=1)))


def test_resumed_run_goes_on_with_the_rest_of_the_first_epoch(trainer: Trainer, bench: Benches, job: Jobs) -> None:
    made = bench(trainer)
    straight = made.run(job(epochs=1, save_every=1, schedule="linear"))
    again = made.resume(straight, 2)
    assert [step.names for step in again.steps] == [step.names for step in straight.steps[2:]]
    assert [step.rate for step in again.steps] == [step.rate for step in straight.steps[2:]]


def test_loop_for_samples_of_variable_size_divides_by_their_tokens(
    bench: Benches, job: Jobs, gradient_ratios: Callable[[Run], list[float]]
) -> None:
    kinds = (Accelerate, TokensAccelerate)
    means, tokens = (gradient_ratios(bench(kind()).run(job(unequal=True, accumulate=2))) for kind in kinds)
    assert means != pytest.approx([1.0, 1.0], rel=1e-2)
    assert tokens == pytest.approx([1.0, 1.0], rel=1e-9)
