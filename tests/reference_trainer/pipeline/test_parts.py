"""Runs that are given their parts as objects."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reference_trainer import Distillation, MetricSum, Settings
from reference_trainer.callbacks.progress import SilentLines
from reference_trainer.pipeline.parts import Recipe, Run, packaged_recipe


class Constant:
    """An evaluation with one number."""

    def evaluate(self) -> dict[str, MetricSum]:
        return {"constant": MetricSum(3.0, 2)}


class Halved:
    """SGD with half the packaged rate."""

    def __init__(self, run: Run) -> None:
        self.packaged = packaged_recipe(run).optimizer

    def make(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1.0)

    def learning_rate(self, step: int) -> float:
        return self.packaged.learning_rate(step) / 2


def recipe(run: Run) -> Recipe:
    return replace(packaged_recipe(run), evaluation=Constant(), optimizer=Halved(run))


def test_run_uses_the_parts_that_it_is_given_and_the_packaged_ones_besides(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path / "out", max_steps=2, warmup=0, lr=0.5, device="cpu", save_every=0)
    with Distillation(settings, recipe=recipe, lines=SilentLines()) as run:
        run.prepare()
        result = run.conclude(run.run())
    assert isinstance(run.optimizer, torch.optim.SGD)
    assert run.optimizer.param_groups[0]["lr"] == run.learning_rate(2) < 0.25 < run.learning_rate(1) + 1e-3
    assert result.held_back == {"constant": MetricSum(3.0, 2)}
    assert isinstance(result.student, nn.Module) and (tmp_path / "out/model.safetensors").exists()


def test_subclass_replaces_single_methods_of_the_parts() -> None:
    class Rate(Distillation):
        def learning_rate(self, step: int) -> float:
            return 2 * super().learning_rate(step)

    class Unchanged(Rate):
        learning_rate = Distillation.learning_rate

    assert Distillation.replaced == frozenset() == Unchanged.replaced
    assert Rate.replaced == {"learning_rate"}
