"""Stop a run if a metric has not improved for some evaluations or logged steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.errors import SettingError
from reference_trainer.plan.schedule import Action


class EarlyStopping(Callback):
    """Callback that returns STOP after `patience` values of `metric` in a row without an improvement.

    A value that is not finite is no improvement. `best` and `waited` are saved in checkpoints; a resumed run restores
    them, unless the saved run had another metric, mode or source. Raise `SettingError` for arguments outside their
    domains, and during the run if the metric is missing.

    Attributes:
        metric: The name of the metric.
        mode: Whether smaller ("min") or larger ("max") is better.
        patience: The number of values in a row without an improvement after which the run stops.
        min_delta: The smallest change, exclusive, that is an improvement.
        source: "evaluation" for `validation_metrics` of evaluations, "log" for `metrics` of logged steps.
        best: The value of the last improvement; None before the first finite value.
        waited: The number of values since the last improvement, or since the start if there is none.
    """

    def __init__(
        self,
        metric: str,
        *,
        mode: Literal["min", "max"] = "min",
        patience: int = 3,
        min_delta: float = 0.0,
        source: Literal["evaluation", "log"] = "evaluation",
    ) -> None:
        if mode not in ("min", "max"):
            raise SettingError(f"invalid mode {mode!r}: expected 'min' or 'max'")
        if source not in ("evaluation", "log"):
            raise SettingError(f"invalid source {source!r}: expected 'evaluation' or 'log'")
        if type(patience) is not int or patience < 1:
            raise SettingError(f"invalid patience {patience!r}: expected a positive integer")
        if isinstance(min_delta, bool) or not 0 <= min_delta < math.inf:
            raise SettingError(f"invalid min_delta {min_delta!r}: expected a non-negative number")
        self.metric, self.mode, self.patience, self.min_delta, self.source = metric, mode, patience, min_delta, source
        self.best: float | None = None
        self.waited = 0
        self._is_restored = False

    def on_train_begin(self, context: Context) -> None:
        # In a resumed run, `load_state_dict` is called just before this hook.
        if not self._is_restored:
            self.best, self.waited = None, 0
        self._is_restored = False

    def on_evaluate(self, context: Context) -> Action | None:
        return self._judge(context.validation_metrics) if self.source == "evaluation" else None

    def on_log(self, context: Context) -> Action | None:
        return self._judge(context.metrics) if self.source == "log" else None

    def attach(self, pipeline: Any) -> None:
        """Raise `SettingError` if the source is "evaluation" and the run has no evaluations that measure the metric."""
        if self.source != "evaluation":
            return
        if not pipeline.settings.evaluation.every:
            raise SettingError(
                f"EarlyStopping needs evaluations for {self.metric!r}: set --eval-every, or source 'log'"
            )
        pipeline.check_metric(self.metric, "EarlyStopping")

    def state_dict(self) -> dict[str, object]:
        return {"of": self._identity, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state.get("of") == self._identity:
            self.best, self.waited = state["best"], state["waited"]
            self._is_restored = True

    @property
    def _identity(self) -> list[str]:
        """Return metric, mode and source. A saved state with another identity is not restored."""
        return [self.metric, self.mode, self.source]

    def _judge(self, metrics: Mapping[str, float]) -> Action | None:
        """Compare the metric with the best value; return STOP after `patience` values without an improvement."""
        if self.metric not in metrics:
            raise SettingError(f"unknown metric {self.metric!r} of {self.source}; choose from {', '.join(metrics)}")
        value = metrics[self.metric]
        if self._improves(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return Action.STOP if self.waited >= self.patience else None

    def _improves(self, value: float) -> bool:
        if not math.isfinite(value) or self.best is None:
            return math.isfinite(value)
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta
