"""Wrong versions of public functions of the trainer, for mutants."""

from __future__ import annotations

from typing import Any


def tau_squared_in_the_gradient(original: Any, *tensors: Any, temperature: float, kd_weight: float, **rest: Any) -> Any:
    """Return the gradient with the factor tau^2 instead of tau."""
    return original(*tensors, temperature=temperature, kd_weight=kd_weight * temperature, **rest)
