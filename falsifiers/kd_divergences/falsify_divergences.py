"""Attacks on the divergences and their gradients."""

import math
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.cases import ANYWHERE, HALVES, LOGITS, POSITIVE_WEIGHTS, KdCase, assert_same_gradient, kd_cases

BETAS = st.fixed_dictionaries({name: st.sampled_from(oracle.betas) for name, oracle in oracles.DIVERGENCES.items()})
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
    student, teacher = (logits.to(dtype).masked_fill(unscored, value) for logits in (case.student, case.teacher))
    return case.but(student=student, teacher=teacher)


@given(case=cases(), betas=BETAS)
def falsify_divergence_against_oracle(subject: Any, device: str, case: KdCase, betas: dict[str, float]) -> None:
    unit = oracles.UNIT_ROUNDOFF[torch.float64 if case.student.dtype is torch.float64 else torch.float32]
    before = [argument.clone() for argument in case.tensors(None)]
    for name, beta in betas.items():  # of drawn names, some would be tried on few cases
        _assert_is_the_oracles(subject, device, case.but(divergence=name, beta=beta), unit)
    for old, now in zip(before, case.tensors(None), strict=True):
        assert torch.equal(old.nan_to_num(7.0), now.nan_to_num(7.0)), "an argument was changed"


def _assert_is_the_oracles(subject: Any, device: str, case: KdCase, unit: float) -> None:
    label = f"{case.divergence} at beta {case.beta}"
    expected, allowed = case.oracle_gradient(), case.allowed_gradient(unit)
    loss, gradient = case.nats(subject, device), case.gradient(subject, device)
    oracles.assert_close(f"{label}, nats", loss, case.oracle_nats(), case.allowed_nats(unit), "its equation")
    assert bool(gradient.isfinite().all()), f"the gradient of {label} is {gradient.tolist()}; expected finite numbers"
    assert_same_gradient(f"the gradient of {label}", gradient, expected, allowed, "its equation")
    # Autograd rounds the gradient to the dtype of the student.
    dtype = case.student.dtype
    narrow = 0.0 if dtype.itemsize > 2 else torch.finfo(dtype).eps * float(expected.abs().max())
    assert_same_gradient(f"autograd of {label}", case.autograd(subject), expected, allowed + narrow, "its equation")


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"divergence": name}, "divergence") for name in ("jsd", None)),
    *(({"beta": beta}, "beta") for beta in (-1e-9, 1 + 1e-9, math.nan, "0.5")),
]


def falsify_settings_are_refused(subject: Any) -> None:
    zeros, labels = torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64)
    usual = {"temperature": 1.0, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": "jensen_shannon"}
    for changed, key in REFUSED:
        for call in (subject.kd_loss, subject.kd_logit_gradient):
            call_it = partial(call, zeros, zeros, labels, **{**usual, **changed})
            oracles.assert_refused(f"{changed}", call_it, f"'{key}'", *map(repr, changed.values()))
