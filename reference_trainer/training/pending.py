"""Sums of steps that are still on the device: read together, in one transfer and one reduction over ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from reference_trainer.distillation.checks import raise_fault
from reference_trainer.distillation.step import MetricSum
from reference_trainer.training.parallel import Parallel
from reference_trainer.training.window import WindowSums

__all__ = ["Pending"]


class Pending:
    """The windows of the steps since the last `read`. Every rank adds the same steps and reads at the same ones."""

    def __init__(self, parallel: Parallel) -> None:
        self._parallel = parallel
        self._steps: list[tuple[WindowSums, Tensor | None]] = []

    def __bool__(self) -> bool:
        return bool(self._steps)

    def add(self, window: WindowSums, gradient_norm: Tensor | None) -> None:
        """Keep the sums of a step and, where it was measured, the norm of its gradient."""
        self._steps.append((window, gradient_norm))

    def read(self) -> Iterator[tuple[dict[str, MetricSum], int]]:
        """Yield the sums of each step over all ranks, by name, and its sequences, in order; forget them.

        Raise the deferred error of the first step that has one when its turn comes.
        """
        steps, self._steps = self._steps, []
        if not steps:
            return
        sums_K = torch.stack([each for window, _ in steps for each in window.sums.values()])
        counts_K = torch.stack([each for window, _ in steps for each in (window.total, window.sequences)])
        norms_K = torch.stack([norm for _, norm in steps if norm is not None] or [sums_K[0]])
        faults_K = torch.stack([fault for window, _ in steps for fault, _ in window.faults] or [counts_K[0]])
        parts = (self._parallel.sum_metrics(sums_K), *(each.to(sums_K) for each in (counts_K, norms_K, faults_K)))
        numbers = torch.cat(parts).tolist()
        sums, counts, norms, faults = (iter(part) for part in _split(numbers, [len(part) for part in parts]))
        for window, norm in steps:
            for _, labels_BT in window.faults:
                raise_fault(int(next(faults)), labels_BT, window.vocabulary)
            total, sequences = int(next(counts)), int(next(counts))
            step = {name: MetricSum(next(sums), total) for name in window.sums}
            if norm is not None:
                step["gradient_norm"] = MetricSum(next(norms), 1)
            yield step, sequences


def _split(numbers: list[float], lengths: list[int]) -> Iterator[list[float]]:
    start = 0
    for length in lengths:
        yield numbers[start : start + length]
        start += length
