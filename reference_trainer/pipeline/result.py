"""The result of a distillation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from reference_trainer.distillation.step import MetricSum
from reference_trainer.pipeline import smoke
from reference_trainer.training.result import TrainResult

__all__ = ["DistillResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillResult:
    """The result of a distillation.

    train: the result of the training loop. output: the directory of the model; None for a smoke run.
    held_back: sums on held-back text, as `evaluate` names them; empty for a smoke run.
    checks: of a smoke run; else empty. student: the trained model. teacher: the frozen one. unit: what a token of the
    data is, "byte" of a text or "token" of batches of a subclass.
    """

    train: TrainResult
    output: Path | None
    held_back: dict[str, MetricSum]
    checks: tuple[smoke.Check, ...]
    student: nn.Module
    teacher: nn.Module
    unit: str = "byte"

    @property
    def go(self) -> bool:
        """Whether every check of a smoke run passed; True for other runs."""
        return all(check.passed for check in self.checks)
