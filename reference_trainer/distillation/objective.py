"""The arguments of the loss and their domains. Importing this module does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reference_trainer.errors import SettingError

IGNORE_INDEX = -100
TEMPERATURES = (1e-4, 1e4)  # tau^2, 1 / tau, and tau^2 times a weight of 1e30 are normal numbers in float32

DIVERGENCES = {
    "forward_kl": "KL(teacher || student)",
    "reverse_kl": "KL(student || teacher)",
    "jensen_shannon": "generalised Jensen-Shannon",
}
"""The description of each divergence by name; `divergences.BY_NAME` has the functions."""
WITH_BETA = ("jensen_shannon",)
"""Names of the divergences that depend on beta, the teacher's share of the mixture of both models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The arguments of ce_weight * cross-entropy + kd_weight * temperature^2 * divergence, in nats per scored row.

    A step that matches hidden states adds feature_weight * `features.feature_loss`, which has no unit.

    Attributes:
        temperature: The divisor of the logits in the divergence, within `TEMPERATURES`.
        ce_weight: The weight of the cross-entropy. All weights are finite and >= 0.
        kd_weight: The weight of the divergence.
        divergence: One of `DIVERGENCES`.
        beta: The teacher's share of the mixture, from 0 to 1, for `WITH_BETA`.
        feature_weight: The weight of the distance of hidden states.

    Raises:
        SettingError: A value is outside its domain.
    """

    temperature: float
    ce_weight: float
    kd_weight: float
    divergence: str = "forward_kl"
    beta: float = 0.5
    feature_weight: float = 0.0

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if not (_is_number(self.temperature) and low <= self.temperature <= high):
            hint = f"expected a number from {low:g} to {high:g} (usually 1 to 4)"
            raise SettingError(f"invalid value {self.temperature!r} for 'temperature': {hint}")
        for name in ("ce_weight", "kd_weight", "feature_weight"):
            weight = getattr(self, name)
            if not (_is_number(weight) and 0 <= weight < math.inf):
                raise SettingError(f"invalid value {weight!r} for '{name}': expected a finite number >= 0")
        if self.divergence not in DIVERGENCES:
            names = ", ".join(DIVERGENCES)
            raise SettingError(f"invalid value {self.divergence!r} for 'divergence': expected one of {names}")
        if not (_is_number(self.beta) and 0 <= self.beta <= 1):
            raise SettingError(f"invalid value {self.beta!r} for 'beta': expected a number from 0 to 1")


def check_ignore_index(ignore_index: int) -> None:
    """Raise `SettingError` unless `ignore_index` is an integer."""
    if not isinstance(ignore_index, int) or isinstance(ignore_index, bool):
        raise SettingError(
            f"invalid value {ignore_index!r} for 'ignore_index': expected an integer, usually {IGNORE_INDEX}"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
