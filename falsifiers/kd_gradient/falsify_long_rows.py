"""Attacks on the numbers of rows with a large vocabulary, whose softmax torch normalises in float32.

The subject has `walk` and `Weights`, as `reference_trainer.distillation.rows` does.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.divergence_oracles import DIVERGENCES

VOCABULARY = 152_064
ALLOWED = 4e-6  # nats: half a unit of a float32 logit of 64. The softmax of torch is off by 2e-5 at these logits
BETA = 0.3


@given(divergence=st.sampled_from(sorted(DIVERGENCES)), seed=st.integers(0, 2**16))
def falsify_long_rows(subject: Any, device: str, divergence: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    student_BTV, teacher_BTV = 5 * torch.randn(2, 1, 2, VOCABULARY, generator=generator)
    labels_BT = torch.randint(VOCABULARY, (1, 2), generator=generator)
    weights = subject.Weights(temperature=1.0, ce_weight=0.5, kd_weight=0.5, divergence=divergence, beta=BETA)
    tensors = (each.to(device) for each in (student_BTV, teacher_BTV, labels_BT))
    rows = subject.walk(*tensors, weights, ignore_index=-100, scale=1.0, metrics=True)
    expected = _expected(student_BTV[0].double(), teacher_BTV[0].double(), labels_BT[0], divergence)
    for name, wanted_N in expected.items():
        error = (getattr(rows, f"{name}_P").cpu() - wanted_N).abs().max().item()
        assert error <= ALLOWED, f"{name} of {VOCABULARY} tokens is off by {error:.2g} nats; allowed are {ALLOWED}"


def _expected(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, divergence: str) -> dict[str, Tensor]:
    log_p_NV, log_q_NV = teacher_NV.log_softmax(-1), student_NV.log_softmax(-1)
    return {
        "cross_entropy": -log_q_NV.gather(1, labels_N[:, None])[:, 0],
        "divergence": DIVERGENCES[divergence].textbook(log_p_NV, log_q_NV, BETA),
        **dict.fromkeys(("kl_at_1", "kl"), DIVERGENCES["forward_kl"].textbook(log_p_NV, log_q_NV, BETA)),
        "teacher_cross_entropy": -log_p_NV.gather(1, labels_N[:, None])[:, 0],
        "teacher_entropy": -(log_p_NV.exp() * log_p_NV).sum(-1),
    }
