from collections.abc import Callable
from typing import Any

import pytest

from pv.suites.training_loop.adapters import NoAdapter, adapted
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.run import Run

trl = pytest.importorskip("trl", reason="install it with `pip install 'pv-contracts[trl]'`")
pytest.importorskip("datasets", reason="install it with `pip install 'pv-contracts[trl]'`")


class Halved(trl.SFTTrainer):  # type: ignore[misc]
    def compute_loss(self, *given: Any, **named: Any) -> Any:
        return super().compute_loss(*given, **named) / 2


def test_run_has_gradients_evaluations_and_checkpoints(
    bench: Callable[[Trainer], Bench], job: Callable[..., Job], assert_whole: Callable[[Run], None]
) -> None:
    given = job(unequal=True, accumulate=2, epochs=2, eval_every=1, save_every=1)
    assert_whole(bench(adapted(trl.SFTTrainer)).run(given))


def test_first_labels_are_not_counted(
    bench: Callable[[Trainer], Bench], job: Callable[..., Job], gradient_ratios: Callable[[Run], list[float]]
) -> None:
    run = bench(adapted(trl.SFTTrainer)).run(job(first=True, accumulate=2))
    assert gradient_ratios(run) == pytest.approx([1.0, 1.0], rel=1e-4)


def test_own_loss_is_under_attack(
    bench: Callable[[Trainer], Bench], job: Callable[..., Job], gradient_ratios: Callable[[Run], list[float]]
) -> None:
    assert gradient_ratios(bench(adapted(Halved)).run(job())) == pytest.approx([0.5] * 4, rel=1e-4)


def test_trainer_of_another_task_is_refused() -> None:
    with pytest.raises(NoAdapter, match="DPOTrainer"):
        adapted(trl.DPOTrainer)
