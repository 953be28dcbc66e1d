from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pv.suites.training_loop.adapters import NoAdapter, adapted
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.probe import token_loss
from pv.suites.training_loop.run import Run

lightning = pytest.importorskip("lightning", reason="install it with `pip install 'pv-contracts[lightning]'`")
pytest.importorskip("torchdata", reason="install it with `pip install 'pv-contracts[lightning]'`")

from pv.suites.training_loop.adapters.lightning import Lightning  # noqa: E402

Benches = Callable[[Trainer], Bench]
Jobs = Callable[..., Job]


class Own(lightning.LightningModule):  # type: ignore[misc]
    """A module as a user writes it, with a loss that is twice too large."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.network = rate, nn.Identity()

    def training_step(self, batch: Any, index: int) -> Any:
        return 2 * token_loss(self.network(batch["input_ids"]), batch["labels"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.rate)


class Adapter(Lightning):
    def module(self, job: Job) -> Own:
        module = Own(job.rate)
        module.network = job.model()
        return module


def test_run_has_gradients_evaluations_and_checkpoints(
    bench: Benches, job: Jobs, assert_whole: Callable[[Run], None]
) -> None:
    run = bench(Lightning()).run(job(accumulate=2, epochs=2, eval_every=1, save_every=1))
    assert_whole(run)
    assert [row["step"] for row in run.logs] == [1, 2, 3, 4]
    assert run.events == ("train_begin", *("epoch_begin", "epoch_end") * 2, "train_end")


def test_resumed_run_goes_on_with_the_rest_of_the_epoch(bench: Benches, job: Jobs) -> None:
    made = bench(Lightning())
    straight = made.run(job(epochs=1, save_every=1))
    assert [step.names for step in made.resume(straight, 2).steps] == [step.names for step in straight.steps[2:]]


def test_own_module_is_under_attack(bench: Benches, job: Jobs, gradient_ratios: Callable[[Run], list[float]]) -> None:
    assert gradient_ratios(bench(adapted(Adapter)).run(job())) == pytest.approx([2.0] * 4, rel=1e-6)


def test_module_without_a_place_for_the_probe_is_refused_with_the_lines_to_write() -> None:
    with pytest.raises(NoAdapter, match=r"(?s)Own is a LightningModule.*module.network = job.model\(\)"):
        adapted(Own)
