"""Wrong versions of public functions and formats of the trainer, for mutants."""

from __future__ import annotations

import re
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


def best_loss_for_last(original: Any, result: Any, project_to_steps: int) -> Any:
    """Report the smallest loss as the last one."""
    return original(replace(result, final_loss=result.best_loss), project_to_steps)


def remaining_steps_projected(original: Any, result: Any, project_to_steps: int) -> Any:
    """Subtract the steps of the smoke run from those of the full run."""
    first, second = original(result, max(0, project_to_steps - result.steps_completed))
    return first, re.sub(r"\([0-9]+ steps\)", f"({project_to_steps} steps)", second)


def projection_of_50000(original: Any, result: Any, project_to_steps: int) -> Any:
    """Project to 50000 steps, whatever is set."""
    return original(result, 50000)


def brackets_unescaped(original: Any, line: str) -> Any:
    """Leave the brackets of a format to the regular expression."""
    return re.compile(original(line).pattern.replace(r"\[SMOKE\]", "[SMOKE]"))


def nan_unread(original: Any, line: str) -> Any:
    """Match numbers without `nan` and `inf`."""
    return re.compile(original(line).pattern.replace("|nan|-?inf", ""))


def verdict_first(original: Any, checks: Any) -> Any:
    """Print the last line of a smoke run before its verdict."""
    *lines, verdict, end = original(checks)
    return (*lines, end, verdict)


def verdict_of_the_last_check(original: Any, checks: Any) -> Any:
    """Decide by the last check alone."""
    *lines, _, end = original(checks)
    return (*lines, f"smoke check: {'go' if not checks or checks[-1].passed else 'no-go'}", end)


def diverged_is_a_go(original: Any, checks: Any) -> Any:
    """Print a go after a single check that failed."""
    return tuple(line.replace("no-go", "go") if len(checks) == 1 else line for line in original(checks))


def losses_always_finite(original: Any, result: Any, *rest: Any) -> Any:
    """Ignore losses that are not finite."""
    return original(replace(result, finite=True, initial_loss=0.0), *rest)


def nan_gradient_passes(original: Any, result: Any, difference: float, *rest: Any) -> Any:
    """Compare the difference with the bound so that NaN does not exceed it."""
    return original(result, difference if difference == difference else 0.0, *rest)


def kibibytes_for_bytes(original: Any, device: Any) -> int:
    """Return kibibytes as bytes."""
    return int(original(device)) // 1024


def any_check_will_do(original: Any, result: Any) -> bool:
    """Need one passed check for a go."""
    return not result.checks or any(check.passed for check in result.checks)


def losses_swapped(original: Any, train: Any, *rest: Any) -> Any:
    """Report the last loss first."""
    return original(replace(train, initial_loss=train.final_loss, final_loss=train.initial_loss), *rest)


def sum_reported_as_mean(original: Any, train: Any, held_back: Any, *rest: Any) -> Any:
    """Report the sum over the held-back text per byte."""
    sums = {name: replace(total, sum=total.sum * total.count) for name, total in held_back.items()}
    return original(train, sums, *rest)


def always_bytes(original: Any, train: Any, held_back: Any, output: Any, unit: str = "byte") -> Any:
    """Call every token a byte."""
    return original(train, held_back, output)
