"""State of a run between two optimizer steps: its position, what was counted, and its losses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from reference_trainer.distillation.step import MetricSum
from reference_trainer.training.schedule import START, Position

__all__ = ["NOTHING", "TrainState"]

NOTHING = MetricSum(0.0, 0)


@dataclass(slots=True, kw_only=True)
class TrainState:
    """Losses are in nats per scored token, each of one step, before the update of that step.

    position: the last event. steps, sequences, tokens: noted, consumed and scored so far, by all ranks.
    initial_loss, final_loss: of the first and last step that scored a token; best_loss: the smallest finite one; each
    None if there is none. loss: of the last step. finite: whether every loss was. epoch: the loss summed since the
    epoch began. interval: sums by name since the last logged step. elapsed_s: seconds of earlier parts of the run.
    """

    position: Position = START
    steps: int = 0
    sequences: int = 0
    tokens: int = 0
    initial_loss: float | None = None
    final_loss: float | None = None
    best_loss: float | None = None
    loss: float | None = None
    finite: bool = True
    elapsed_s: float = 0.0
    epoch: MetricSum = NOTHING
    interval: dict[str, MetricSum] = field(default_factory=dict)

    def note(self, sums: Mapping[str, MetricSum], sequences: int) -> None:
        """Count one step: its "loss" and other sums over all ranks."""
        for name, each in sums.items():
            self.interval[name] = _added(self.interval.get(name, NOTHING), each)
        loss = sums["loss"]
        self.steps += 1
        self.sequences += sequences
        self.tokens += loss.count
        self.epoch = _added(self.epoch, loss)
        self.loss = loss.sum / loss.count if loss.count else None
        if self.loss is not None:
            self._note_loss(self.loss)

    def _note_loss(self, loss: float) -> None:
        self.initial_loss = loss if self.initial_loss is None else self.initial_loss
        self.final_loss = loss
        if math.isfinite(loss):
            self.best_loss = min(loss, math.inf if self.best_loss is None else self.best_loss)
        else:
            self.finite = False


def _added(first: MetricSum, second: MetricSum) -> MetricSum:
    return MetricSum(first.sum + second.sum, first.count + second.count)
