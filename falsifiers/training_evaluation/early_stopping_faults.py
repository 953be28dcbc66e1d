"""Wrong versions of public functions: the faults that the contract declares."""

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
