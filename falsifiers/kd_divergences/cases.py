"""Cases of a divergence: a distillation case, the divergence's name and beta, and what the oracles say of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.strategies import KdCase

NAMED = st.sampled_from(
    [(name, beta) for name, oracle in divergence_oracles.DIVERGENCES.items() for beta in oracle.betas]
)
DEFAULTS = (("divergence", "forward_kl"), ("beta", 0.5))


@dataclass(frozen=True, slots=True, eq=False)
class Divergence:
    """A case, without its cross-entropy, and the divergence in it."""

    case: KdCase
    name: str
    beta: float

    def call(self, function: Any, device: str | None = None) -> Any:
        """Return the result of `kd_loss` or `kd_logit_gradient` for this case; defaults are not passed."""
        named = {"divergence": self.name, "beta": self.beta}
        given = {key: value for key, value in named.items() if (key, value) not in DEFAULTS}
        return function(*self.case.tensors(device), **self.case.arguments(), **given)

    def nats(self) -> float:
        """Return the oracle's loss in nats, summed over scored positions."""
        tau, weight = self.case.temperature, self.case.kd_weight
        rows = (divergence_oracles.row_divergence(s, t, tau, self.name, self.beta) for _, s, t, _ in self.case.rows())
        return weight * tau**2 * math.fsum(rows)

    def gradient(self) -> Tensor:
        """Return the oracle's gradient of the sum, float64 [B, T, V], 0 at unscored positions."""
        gradient, tau = torch.zeros(self.case.student.shape, dtype=torch.float64), self.case.temperature
        for (b, t), student, teacher, _ in self.case.rows():
            row = divergence_oracles.row_derivative(student, teacher, tau, self.name, self.beta)
            gradient[b, t] = self.case.kd_weight * tau * torch.tensor(row, dtype=torch.float64)
        return gradient

    def allowed_nats(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        """Return the largest rounding error of the sum in nats."""
        tau = self.case.temperature
        rows = (divergence_oracles.allowed_divergence(s, t, tau, unit) for _, s, t, _ in self.case.rows())
        return self.case.kd_weight * tau**2 * math.fsum(rows)

    def allowed_gradient(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        """Return the largest rounding error of an element of the gradient."""
        tau = self.case.temperature
        rows = (divergence_oracles.allowed_derivative(s, t, tau, unit) for _, s, t, _ in self.case.rows())
        return self.case.kd_weight * tau * max(rows, default=0.0)
