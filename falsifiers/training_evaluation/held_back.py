"""Held-back text of three rows, and its evaluation."""

from __future__ import annotations

from typing import Any

import torch

from reference_trainer.distillation.protocols import Batch
from reference_trainer.training.evaluation import evaluate


class Text:
    """Three rows of held-back tokens in batches of two."""

    batches, device = 2, torch.device("cpu")
    tokens = torch.tensor([[1, 2, 3, 4], [0, 10, 10, 5], [7, 7, 1, 0]])

    def __len__(self) -> int:
        return 3

    def batch(self, order: torch.Tensor, position: int) -> Batch:
        rows = self.tokens[order[2 * position - 2 : 2 * position]]
        return Batch(tokens=rows, labels=rows)


def measured(run: Any) -> dict[str, Any]:
    """Evaluate on the text above, at the temperature of the last planned step."""
    from reference_trainer.pipeline.loss import objective

    weights = objective(run.settings).weights(run.schedule.planned_steps, run.schedule.planned_steps)
    sums: dict[str, Any] = evaluate(run.frozen, run.learner, Text(), weights)
    return sums
