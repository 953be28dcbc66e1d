"""Results of smoke runs, and regular expressions for their two lines."""

from __future__ import annotations

import re
from typing import Any

SUMMARY = re.compile(
    r"\[SMOKE\] ([0-9]+) steps in ([0-9]+\.[0-9]{2})s: initial_loss=(-?[0-9]+\.[0-9]{4}|nan|-?inf), "
    r"final_loss=(-?[0-9]+\.[0-9]{4}|nan|-?inf), throughput=([0-9]+\.[0-9]{2}) step/s"
)
PROJECTION = re.compile(
    r"\[SMOKE\] projected full-run wall time \(([0-9]+) steps\): "
    r"([0-9]+\.[0-9]{2})h / ([0-9]+\.[0-9]) min / ([0-9]+\.[0-9])s"
)


def result_of(subject: Any, **fields: Any) -> Any:
    usual = {"best_loss": 0.5, "finite": True, "tokens": 12345, "stopped": False}
    return subject.TrainResult(**{**usual, "initial_loss": 2.0, "final_loss": 1.0, **fields})
