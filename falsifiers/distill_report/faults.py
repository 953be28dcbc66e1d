"""Wrong versions of public functions and formats of the trainer, for mutants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

ONE_DECIMAL = (
    "[SMOKE] {steps} steps in {elapsed_s:.1f}s: initial_loss={initial_loss:.4f}, final_loss={final_loss:.4f}, "
    "throughput={throughput:.1f} step/s"
)
FIFTY_K = "[SMOKE] projected full-run wall time (50K steps): {hours:.2f}h / {minutes:.1f} min / {seconds:.1f}s"


def zero_steps_divided(original: Any, result: Any, project_to_steps: int) -> Any:
    """Divide the time by the steps before they are checked."""
    pace = result.elapsed_s / result.steps_completed
    return original(replace(result, elapsed_s=pace * result.steps_completed), project_to_steps)


def tokens_per_second(original: Any, result: Any) -> float:
    """Return tokens per second as steps per second."""
    return float(result.tokens / result.elapsed_s)


def verdict_of_the_last_check(original: Any, checks: Any) -> Any:
    """Decide by the last check alone."""
    *lines, _, end = original(checks)
    return (*lines, f"smoke check: {'go' if not checks or checks[-1].passed else 'no-go'}", end)
