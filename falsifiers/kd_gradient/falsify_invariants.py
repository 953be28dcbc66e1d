"""Attacks on the symmetries of a distillation loss: constants added to rows, token names, order of positions."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.strategies import HALVES, KdCase, kd_cases, unit_of


@given(case=kd_cases(logits=HALVES), student_shift=HALVES, teacher_shift=HALVES)
def falsify_shift_invariance(
    subject: Any, device: str, case: KdCase, student_shift: float, teacher_shift: float
) -> None:
    shift = torch.arange(1, case.labels.numel() + 1).reshape(*case.labels.shape, 1).double()
    moved = case.but(student=case.student + student_shift * shift, teacher=case.teacher + teacher_shift * shift)
    formula = "the same logits before a constant was added to each row"
    allowed = case.allowed_nats(unit_of(subject)) + moved.allowed_nats(unit_of(subject))
    oracles.assert_close("sum in nats", moved.nats(subject, device), case.nats(subject, device), allowed, formula)
    seen, expected = moved.gradient(subject, device), case.gradient(subject, device)
    assert_same_gradient(
        "the gradient",
        seen,
        expected,
        case.allowed_gradient(unit_of(subject)) + moved.allowed_gradient(unit_of(subject)),
        formula,
    )


@given(case=kd_cases(), order=st.permutations(range(5)), reverse=st.booleans())
def falsify_permutation_equivariance(subject: Any, device: str, case: KdCase, order: list[int], reverse: bool) -> None:
    tokens = torch.tensor([v for v in order if v < case.student.shape[-1]])
    positions = torch.arange(case.labels.shape[1])
    positions = positions.flip(0) if reverse else positions.roll(1)
    labels = torch.where(case.scored, tokens.argsort()[case.labels.clamp_min(0)], case.labels)
    renamed = case.but(
        student=case.student[..., tokens][:, positions],
        teacher=case.teacher[..., tokens][:, positions],
        labels=labels[:, positions],
    )
    formula = "the same tokens and positions in another order"
    allowed = case.allowed_nats(unit_of(subject)) + renamed.allowed_nats(unit_of(subject))
    oracles.assert_close("sum in nats", renamed.nats(subject, device), case.nats(subject, device), allowed, formula)
    expected = case.gradient(subject, device)[..., tokens][:, positions]
    assert_same_gradient(
        "the gradient",
        renamed.gradient(subject, device),
        expected,
        2 * case.allowed_gradient(unit_of(subject)),
        formula,
    )
