"""Attacks on the divergences and their gradients."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.comparison import ANYWHERE, assert_same_gradient
from falsifiers.support.strategies import HALVES, LOGITS, POSITIVE_WEIGHTS, KdCase, kd_cases

NAMED = st.sampled_from(
    [(name, beta) for name, oracle in divergence_oracles.DIVERGENCES.items() for beta in oracle.betas]
)
BETAS = st.fixed_dictionaries(
    {name: st.sampled_from(oracle.betas) for name, oracle in divergence_oracles.DIVERGENCES.items()}
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


ALONE: dict[str, Any] = {"ce_weights": st.just(0.0), "kd_weights": POSITIVE_WEIGHTS}
COLD = kd_cases(logits=st.sampled_from([50.0, -50.0, 0.0, 49.0]), temperatures=st.just(0.05), **ALONE)
CASES = kd_cases(banned=ANYWHERE, logits=LOGITS | st.sampled_from([-1000.0, -300.0]), **ALONE)
NARROW = kd_cases(banned=ANYWHERE, logits=HALVES | st.just(-500.0), **ALONE)
NARROW_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@st.composite
def cases(draw: st.DrawFn) -> KdCase:
    """Draw a case in float64, or a narrower one, also at a low temperature, with any value at unscored positions."""
    kinds = [(CASES, torch.float64), (COLD, torch.float32), *((NARROW, dtype) for dtype in NARROW_DTYPES)]
    case, dtype = draw(st.one_of(*(st.tuples(cases, st.just(dtype)) for cases, dtype in kinds)))
    unscored, value = ~case.scored[..., None], draw(st.sampled_from([0.0, math.nan, -math.inf, 1e3]))
    student, teacher = (each.to(dtype).masked_fill(unscored, value) for each in (case.student, case.teacher))
    return case.but(student=student, teacher=teacher)


@given(case=cases(), betas=BETAS)
def falsify_divergence_against_oracle(subject: Any, device: str, case: KdCase, betas: dict[str, float]) -> None:
    unit = oracles.UNIT_ROUNDOFF[torch.float64 if case.student.dtype is torch.float64 else torch.float32]
    before = [each.clone() for each in case.tensors(None)]
    for name, beta in betas.items():  # of drawn names, some would be tried on few cases
        _assert_is_the_oracles(subject, device, Divergence(case, name, beta), unit)
    for was, now in zip(before, case.tensors(None), strict=True):
        assert torch.equal(was.nan_to_num(7.0), now.nan_to_num(7.0)), "an argument was changed"


def _assert_is_the_oracles(subject: Any, device: str, of: Divergence, unit: float) -> None:
    what = f"{of.name} at beta {of.beta}"
    loss, gradient = of.call(subject.kd_loss, device), of.call(subject.kd_logit_gradient, device).cpu()
    oracles.assert_close(f"{what}, nats", float(loss.sum), of.nats(), of.allowed_nats(unit), "its equation")
    assert bool(gradient.isfinite().all()), f"the gradient of {what} is {gradient.tolist()}; expected finite numbers"
    assert_same_gradient(f"the gradient of {what}", gradient, of.gradient(), of.allowed_gradient(unit), "its equation")
    leaf = of.case.student.clone().requires_grad_()
    of_leaf = Divergence(of.case.but(student=leaf), of.name, of.beta)
    of_leaf.call(subject.kd_loss).sum.backward()
    narrow = 0.0 if leaf.dtype.itemsize > 2 else torch.finfo(leaf.dtype).eps * float(of.gradient().abs().max())
    allowed = of.allowed_gradient(unit) + narrow
    assert leaf.grad is not None
    assert_same_gradient(f"autograd of {what}", leaf.grad, of.gradient(), allowed, "its equation")


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"divergence": name}, "divergence") for name in ("jsd", None)),
    *(({"beta": beta}, "beta") for beta in (-1e-9, 1 + 1e-9, math.nan, "0.5")),
]


def falsify_settings_are_refused(subject: Any) -> None:
    zeros, labels = torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64)
    usual = {"temperature": 1.0, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": "jensen_shannon"}
    for changed, key in REFUSED:
        for call in (subject.kd_loss, subject.kd_logit_gradient):
            given = partial(call, zeros, zeros, labels, **{**usual, **changed})
            oracles.assert_refused(f"{changed}", given, f"'{key}'", *map(repr, changed.values()))
