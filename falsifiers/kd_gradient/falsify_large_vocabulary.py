"""Attacks on a distillation loss with a vocabulary so large that its rows are computed in several blocks."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.cases import KdCase

V = 70_000


def _textbook(case: KdCase) -> tuple[float, Tensor]:
    """Return loss and gradient in float64, by log_softmax over all scored rows at once."""
    s, t, y = case.student[case.scored], case.teacher[case.scored], case.labels[case.scored]
    log_q, log_p = (s / case.temperature).log_softmax(-1), (t / case.temperature).log_softmax(-1)
    hard = -s.log_softmax(-1).gather(-1, y[:, None]).sum()
    soft = case.temperature**2 * (log_p.exp() * (log_p - log_q)).sum()
    onehot = torch.zeros_like(s).scatter(-1, y[:, None], 1.0)
    gradient = torch.zeros_like(case.student)
    gradient[case.scored] = case.ce_weight * (s.softmax(-1) - onehot) + case.kd_weight * case.temperature * (
        log_q.exp() - log_p.exp()
    )
    return float(case.ce_weight * hard + case.kd_weight * soft), gradient


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 11), unscored=st.integers(0, 3))
def falsify_large_vocabulary(subject: Any, device: str, seed: int, rows: int, unscored: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    student, teacher = (3 * torch.randn(1, rows, V, generator=draw, dtype=torch.float64) for _ in range(2))
    labels = torch.randint(V, (1, rows), generator=draw)
    labels[0, torch.randperm(rows, generator=draw)[:unscored]] = -100
    case = KdCase(student, teacher, labels, 2.0, 0.3, 0.7, -100)
    expected, gradient = _textbook(case)
    seen, closed = case.nats(subject, device), case.gradient(subject, device)
    assert abs(seen - expected) <= 1e-9 * (1 + expected), f"{rows} rows: the sum is {seen}; expected {expected}"
    apart = float((closed - gradient).abs().max())
    assert apart <= 1e-12, f"{rows} rows: the gradient is off by {apart} in one element"
