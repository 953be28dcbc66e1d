"""State of a run between two optimizer steps: its position, what was counted, and its losses."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pydantic import ConfigDict, TypeAdapter, with_config

from reference_trainer.distillation.step import MetricSum
from reference_trainer.plan.schedule import START, Position

__all__ = ["NOTHING", "TrainState", "initial_state", "state_from_json", "state_to_json"]

NOTHING = MetricSum(0.0, 0)
_JSON = ConfigDict(ser_json_inf_nan="strings", extra="forbid")


@with_config(_JSON)
@dataclass(slots=True, kw_only=True)
class TrainState:
    """Losses are in nats per scored token, each of one step, before the update of that step.

    position: the last event. steps, sequences, tokens: noted, consumed and scored so far, by all ranks.
    initial_loss, final_loss: of the first and last step that scored a token; best_loss: the smallest finite one; each
    None if there is none. loss: of the last step. finite: whether every loss was. epoch: the loss summed since the
    epoch began. interval: sums by name since the last logged step. metrics: of the last logged step, `logged_step`.
    validation: of the last evaluation, in `evaluated_step`; both steps are 0 before. callbacks: their states as JSON,
    by name. elapsed_s: seconds from the begin of the run to its last event.
    """

    position: Position
    steps: int
    sequences: int
    tokens: int
    initial_loss: float | None
    final_loss: float | None
    best_loss: float | None
    loss: float | None
    finite: bool
    elapsed_s: float
    epoch: MetricSum
    interval: dict[str, MetricSum]
    metrics: dict[str, float]
    logged_step: int
    validation: dict[str, float]
    evaluated_step: int
    callbacks: dict[str, str]

    def note(self, sums: Mapping[str, MetricSum], sequences: int) -> None:
        """Count one step: its "loss" and other sums over all ranks."""
        for name, total in sums.items():
            self.interval[name] = self.interval.get(name, NOTHING) + total
        loss = sums["loss"]
        self.steps += 1
        self.sequences += sequences
        self.tokens += loss.count
        self.epoch = self.epoch + loss
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


def initial_state() -> TrainState:
    """Return the state of a run before its first event."""
    return TrainState(
        position=START,
        steps=0,
        sequences=0,
        tokens=0,
        initial_loss=None,
        final_loss=None,
        best_loss=None,
        loss=None,
        finite=True,
        elapsed_s=0.0,
        epoch=NOTHING,
        interval={},
        metrics={},
        logged_step=0,
        validation={},
        evaluated_step=0,
        callbacks={},
    )


def state_to_json(state: TrainState) -> str:
    """Return the state as JSON; losses that are not finite are strings, because JSON has no NaN."""
    return _adapter().dump_json(state).decode()


def state_from_json(text: str) -> TrainState:
    """Return the state that `state_to_json` wrote, equal in every bit; NaN stays NaN.

    Raise `ValueError` for unknown or missing fields and for values of another type, at any depth.
    """
    state = _adapter().validate_json(text)
    if _canonical(state_to_json(state)) != _canonical(text):  # pydantic converts "3" to 3, and fills in defaults
        raise ValueError("invalid state of a run: a field is missing or has another type")
    return state


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


@cache
def _adapter() -> TypeAdapter[TrainState]:
    """Return the adapter, which takes longer to build than its module to import: built by the first save."""
    return TypeAdapter(TrainState)
