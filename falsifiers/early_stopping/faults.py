"""Wrong versions of public functions: the faults that the contract `early-stopping` declares."""

from __future__ import annotations

import math
from typing import Any


def nan_becomes_best(original: Any, self: Any, context: Any) -> Any:
    """Take a NaN that comes first for the best value, which nothing improves."""
    if self.best is None and self.metric in context.validation_metrics:
        value = context.validation_metrics[self.metric]
        if math.isnan(value):
            self.best = value
            return None
    return original(self, context)


def nan_ignored(original: Any, self: Any, context: Any) -> Any:
    """Do not count an evaluation that is NaN."""
    return None if math.isnan(context.validation_metrics.get(self.metric, 0)) else original(self, context)


def smaller_is_always_better(original: Any, self: Any, context: Any) -> Any:
    """Ignore the mode."""
    self.mode = "min"
    return original(self, context)


def min_delta_ignored(original: Any, self: Any, context: Any) -> Any:
    """Count any gain as an improvement."""
    self.min_delta = 0.0
    return original(self, context)


def one_evaluation_late(original: Any, self: Any, context: Any) -> Any:
    """Wait for one evaluation more."""
    answer = original(self, context)
    return answer if self.waited > self.patience else None


def log_ignored(self: Any, context: Any) -> None:
    """Look at evaluations alone."""


def waited_forgotten(original: Any, self: Any, state: Any) -> None:
    """Start waiting again from zero when the run is resumed."""
    original(self, {**state, "waited": 0})


def states_not_saved(self: Any) -> dict[str, str]:
    """Save no state of callbacks."""
    return {}


def anything_accepted(original: Any, self: Any, metric: str, **given: Any) -> None:
    """Check no argument."""
    original(self, metric)
    vars(self).update(given)


def missing_metric_skipped(original: Any, self: Any, context: Any) -> Any:
    """Skip an evaluation without the metric."""
    return original(self, context) if self.metric in context.validation_metrics else None


def state_of_the_first(original: Any, callbacks: Any, states: Any) -> None:
    """Give every callback of a class the state of the first one."""
    original(callbacks, {name: states[f"{name.rpartition(' ')[0]} 1"] for name in states})


def state_of_any_metric(self: Any, state: Any) -> None:
    """Restore what another metric has reached."""
    self.best, self.waited = state["best"], state["waited"]


def attached_unchecked(self: Any, pipeline: Any) -> None:
    """Accept a run that is never evaluated."""


def state_outlives_its_run(self: Any, context: Any) -> None:
    """Begin a run with what the run before has reached."""
