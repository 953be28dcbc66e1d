"""Sums of steps that are still on the device: read together, in one transfer and one reduction over ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from reference_trainer.distillation.checks import raise_fault
from reference_trainer.distillation.step import MetricSum
from reference_trainer.ranks.parallel import Parallel
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
        sums_K = torch.stack([summed for window, _ in steps for summed in window.sums.values()])
        counts_K = torch.stack([count for window, _ in steps for count in (window.total, window.sequences)])
        norms = [norm for _, norm in steps if norm is not None]
        faults = [fault for window, _ in steps for fault, _ in window.faults]
        parts = [self._parallel.sum_metrics(sums_K), counts_K, *norms, *faults]
        numbers = iter(torch.cat([part.to(sums_K).flatten() for part in parts]).tolist())
        sums = [{name: next(numbers) for name in window.sums} for window, _ in steps]
        counts = [(int(next(numbers)), int(next(numbers))) for _ in steps]
        measured = [None if norm is None else next(numbers) for _, norm in steps]
        for (window, _), step, (total, sequences), norm in zip(steps, sums, counts, measured, strict=True):
            for _, labels_BT in window.faults:
                raise_fault(int(next(numbers)), labels_BT, window.vocabulary)
            noted = {name: MetricSum(nats, total) for name, nats in step.items()}
            if norm is not None:
                noted["gradient_norm"] = MetricSum(norm, 1)
            yield noted, sequences
