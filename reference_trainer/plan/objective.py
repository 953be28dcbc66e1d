"""The loss of a run: the arguments of each step, some of which change over the steps."""

from __future__ import annotations

from dataclasses import dataclass

from reference_trainer.distillation.objective import Weights
from reference_trainer.plan.annealing import Annealed

__all__ = ["Objective"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Arguments of the loss that is minimised, each a number or one that changes over the steps of the run.

    Domains are those of `reference_trainer.distillation.losses`. feature_weight: of the distance of hidden states.
    """

    temperature: float | Annealed
    ce_weight: float | Annealed
    kd_weight: float | Annealed
    divergence: str = "forward_kl"
    beta: float = 0.5
    feature_weight: float | Annealed = 0.0

    def weights(self, step: int, total: int) -> Weights:
        """Return the arguments of step `step`, from 1, of `total`."""

        def now(value: float | Annealed) -> float:
            return value.at(step, total) if isinstance(value, Annealed) else value

        return Weights(
            temperature=now(self.temperature),
            ce_weight=now(self.ce_weight),
            kd_weight=now(self.kd_weight),
            divergence=self.divergence,
            beta=self.beta,
            feature_weight=now(self.feature_weight),
        )

    def is_taught(self, first: int, last: int, total: int) -> bool:
        """Return whether any of the steps from `first` to `last` has a weight above 0 that needs the teacher.

        A weight that changes is 0 in a first or a last part of the run only, so these two steps tell it.
        """
        both = (self.weights(first, total), self.weights(last, total))
        return any(weights.kd_weight or weights.feature_weight for weights in both)
