"""Attacks on the numbers of rows with a large vocabulary, whose softmax torch normalises in float32.

The subject has `walk` and `Weights`, as `reference_trainer.distillation.rows` does.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

VOCABULARY = 152_064
ALLOWED = 4e-6  # nats: half a unit of a float32 logit of 64. The softmax of torch is off by 2e-5 at these logits
SHARES = {"forward_kl": 0.0, "reverse_kl": 1.0, "jensen_shannon": 0.3}


@given(divergence=st.sampled_from(sorted(SHARES)), seed=st.integers(0, 2**16))
def falsify_long_rows(subject: Any, device: str, divergence: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    student_BTV, teacher_BTV = 5 * torch.randn(2, 1, 2, VOCABULARY, generator=generator)
    labels_BT = torch.randint(VOCABULARY, (1, 2), generator=generator)
    weights = subject.Weights(temperature=1.0, ce_weight=0.5, kd_weight=0.5, divergence=divergence, beta=0.3)
    tensors = (each.to(device) for each in (student_BTV, teacher_BTV, labels_BT))
    rows = subject.walk(*tensors, weights, ignore_index=-100, scale=1.0, metrics=True)
    expected = _expected(student_BTV[0].double(), teacher_BTV[0].double(), labels_BT[0], SHARES[divergence])
    for name, wanted_N in expected.items():
        error = (getattr(rows, f"{name}_P").cpu() - wanted_N).abs().max().item()
        assert error <= ALLOWED, f"{name} of {VOCABULARY} tokens is off by {error:.2g} nats; allowed are {ALLOWED}"


def _expected(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, share: float) -> dict[str, Tensor]:
    log_p_NV, log_q_NV = teacher_NV.log_softmax(-1), student_NV.log_softmax(-1)
    if share in (0, 1):
        divergence_N = _kl(log_q_NV, log_p_NV) if share else _kl(log_p_NV, log_q_NV)
    else:
        log_m_NV = (share * log_p_NV.exp() + (1 - share) * log_q_NV.exp()).log()
        divergence_N = share * _kl(log_p_NV, log_m_NV) + (1 - share) * _kl(log_q_NV, log_m_NV)
    return {
        "cross_entropy": -log_q_NV.gather(1, labels_N[:, None])[:, 0],
        "divergence": divergence_N,
        "kl_at_1": _kl(log_p_NV, log_q_NV),
        "kl": _kl(log_p_NV, log_q_NV),
        "teacher_cross_entropy": -log_p_NV.gather(1, labels_N[:, None])[:, 0],
        "teacher_entropy": -(log_p_NV.exp() * log_p_NV).sum(-1),
    }


def _kl(log_a_NV: Tensor, log_b_NV: Tensor) -> Tensor:
    return (log_a_NV.exp() * (log_a_NV - log_b_NV)).sum(-1)
