"""Wrong versions of public functions and formats of the trainer, for mutants."""

from dataclasses import replace
from typing import Any

from falsifiers.support.run_lines import SMOKE_PROJECTION, SMOKE_SUMMARY

ONE_DECIMAL = SMOKE_SUMMARY.replace(":.2f}", ":.1f}")
FIFTY_K = SMOKE_PROJECTION.replace("{steps}", "50K")


def zero_steps_divided(original: Any, result: Any, *projected: int) -> Any:
    pace = result.elapsed_s / result.steps_completed
    return original(replace(result, elapsed_s=pace * result.steps_completed), *projected)


def tokens_per_second(original: Any, result: Any) -> float:
    return float(result.tokens / result.elapsed_s)


def verdict_of_the_last_check(original: Any, checks: Any) -> Any:
    *lines, _, end = original(checks)
    return (*lines, f"smoke check: {'go' if not checks or checks[-1].passed else 'no-go'}", end)


def tau_squared_in_the_gradient(original: Any, *tensors: Any, temperature: float, kd_weight: float, **rest: Any) -> Any:
    return original(*tensors, temperature=temperature, kd_weight=kd_weight * temperature, **rest)
