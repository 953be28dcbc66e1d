"""Formats of the lines that a run prints, shared by the code that writes them and the code that parses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter

from reference_trainer.distillation.metrics import EVALUATED

__all__ = [
    "ATTACHED_LINE",
    "EPOCH_LINE",
    "FIRST_STEP_LINE",
    "LOGGED_METRICS",
    "SMOKE_END_LINE",
    "SMOKE_OUTPUT_LINE",
    "SMOKE_PLANNED_LINE",
    "SMOKE_PROJECTION_LINE",
    "SMOKE_START_LINE",
    "SMOKE_SUMMARY_LINE",
    "STEP_LINE",
    "duration",
    "evaluation_line",
    "metrics_line",
    "pattern",
]

ATTACHED_LINE = "ProgressCallback attached (log every {every} steps; 0 for epoch lines only)"
STEP_LINE = "  Step {step}/{total}: loss: {loss:.4f}"
FIRST_STEP_LINE = "first step in {seconds:.2f}s; the other {left} take about {duration} at this rate"
EPOCH_LINE = "Epoch {epoch}/{epochs}: loss: {loss:.4f} ({elapsed_s:.1f}s)"
SMOKE_START_LINE = "smoke mode: {steps} steps at most, then the run ends; no model will be written"
SMOKE_OUTPUT_LINE = "smoke mode: a full run would be refused: {error}"
SMOKE_SUMMARY_LINE = (
    "[SMOKE] {steps} steps in {elapsed_s:.2f}s: initial_loss={initial_loss:.4f}, final_loss={final_loss:.4f}, "
    "throughput={throughput:.2f} step/s"
)
SMOKE_PROJECTION_LINE = (
    "[SMOKE] projected full-run wall time ({steps} steps): {hours:.2f}h / {minutes:.1f} min / {seconds:.1f}s"
)
SMOKE_PLANNED_LINE = "smoke mode: the planned run of {steps} steps takes about {seconds:.1f}s at this pace"
SMOKE_END_LINE = "smoke mode: export skipped, no model was written"

LOGGED_METRICS = ("loss", "hard_loss", "soft_loss", "feature", "kl_at_1", "student_perplexity", "teacher_perplexity")
"""Metrics of a line, in its order."""
EVALUATED_METRICS = tuple(
    EVALUATED + name for name in ("hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "agreement")
)
"""The first metrics of an evaluation, in the order of its line."""


def duration(seconds: float) -> str:
    """Return a number of seconds in the unit that suits it: `45 s`, `12 min` or `3.5 h`."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Return the line of a logged step: those of `LOGGED_METRICS` that are present, with four significant digits.

    Return "" if none of them is present.
    """
    shown = [f"{name}={metrics[name]:.4g}" for name in LOGGED_METRICS if name in metrics]
    return f"Distillation metrics | {' '.join(shown)}" if shown else ""


def evaluation_line(step: int, total: int, metrics: Mapping[str, float]) -> str:
    """Return the line of an evaluated step: those of `EVALUATED_METRICS` that are present, then all others by name.

    Return "" if there are none.
    """
    names = sorted(metrics, key=lambda name: ((*EVALUATED_METRICS, name).index(name), name))
    shown = [f"{name}={metrics[name]:.4g}" for name in names]
    return f"Evaluation at step {step}/{total} | {' '.join(shown)}" if shown else ""


def pattern(line: str) -> re.Pattern[str]:
    """Return a pattern that matches exactly the lines of this format, with a group for each field.

    A field `{x:.2f}` matches a number with two decimals, `nan` or `inf`; a bare field matches an integer.
    """
    parts = []
    for text, name, spec, _ in Formatter().parse(line):
        parts.append(re.escape(text))
        if name is not None:
            number = rf"-?\d+\.\d{{{spec[1:-1]}}}|nan|-?inf" if spec else r"\d+"
            parts.append(f"(?P<{name}>{number})")
    return re.compile("".join(parts))
