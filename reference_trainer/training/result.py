"""What a run of the loop gives: its result, and what is saved of it between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reference_trainer.training.state import TrainState

__all__ = ["Saved", "TrainResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """Result of a run. Losses are in nats per scored token, each of one step, before the update of that step.

    initial_loss, final_loss: of the first and last step that scored a token; best_loss: the smallest finite one; each
    None if there is none. finite: whether every loss was. tokens: scored tokens. stopped: whether a callback
    ended the run. metrics: of the last logged step. validation: of the last evaluation.
    """

    initial_loss: float | None
    final_loss: float | None
    best_loss: float | None
    finite: bool
    steps_completed: int
    tokens: int
    elapsed_s: float
    stopped: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float:
        """Return optimizer steps per second; a run of zero seconds counts as one nanosecond."""
        return self.steps_completed / max(self.elapsed_s, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A run whose state may be saved: at each step that is evaluated or whose checkpoint is due.

    evaluated: whether `state.validation` was measured at this step. due: whether a checkpoint is.
    """

    state: TrainState
    due: bool
    evaluated: bool
