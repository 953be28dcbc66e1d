"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any


def nan_becomes_best(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    """Compare the best loss with `not loss >= best`, which is true for NaN."""
    before = self.best_loss
    original(self, sums, sequences)
    if self.loss is not None and not (before is not None and self.loss >= before):
        self.best_loss = self.loss


def empty_step_is_perfect(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    """Count a step without scored tokens as a loss of 0."""
    original(self, sums, sequences)
    if self.loss is None:
        self.loss = self.final_loss = self.best_loss = 0.0


def mean_of_means(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    """Add the means of the steps, each as one."""
    interval, epoch = dict(self.interval), self.epoch
    original(self, sums, sequences)
    for name, each in sums.items():
        mean = replace(each, sum=each.sum / max(each.count, 1), count=min(each.count, 1))
        old = interval.get(name, replace(mean, sum=0.0, count=0))
        self.interval[name] = replace(mean, sum=old.sum + mean.sum, count=old.count + mean.count)
    loss = sums["loss"]
    mean = loss.sum / max(loss.count, 1)
    self.epoch = replace(epoch, sum=epoch.sum + mean, count=epoch.count + min(loss.count, 1))


def best_forgotten(original: Any, text: str) -> Any:
    """Restore a state without its best loss."""
    return replace(original(text), best_loss=None)
