"""Results of runs, and regular expressions for the two lines of a smoke run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from falsifiers.support.run_lines import SMOKE_PROJECTION, SMOKE_SUMMARY, matcher
from reference_trainer.pipeline.distill import DistillResult
from reference_trainer.training.loop import TrainResult

SUMMARY, PROJECTION = matcher(SMOKE_SUMMARY), matcher(SMOKE_PROJECTION)
USUAL = {
    "initial_loss": 2.0,
    "final_loss": 1.0,
    "best_loss": 0.5,
    "finite": True,
    "steps_completed": 9,
    "tokens": 12345,
    "elapsed_s": 4.0,
    "stopped": False,
}


def result_of(**fields: Any) -> TrainResult:
    """Return the result of a training loop with these fields."""
    return TrainResult(**{**USUAL, **fields})


def distilled_with(**fields: Any) -> DistillResult:
    """Return the result of a distillation, without models."""
    nothing: Any = None
    usual = {"train": result_of(), "output": Path("out"), "held_back": {}, "checks": ()}
    return DistillResult(**{**usual, "student": nothing, "teacher": nothing, **fields})
