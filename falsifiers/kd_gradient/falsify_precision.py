"""Attacks on the precision of a distillation loss: dtypes, counts, loss scales and large vocabularies."""

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.comparison import (
    assert_loss_is_the_oracles,
)
from falsifiers.support.divergence_oracles import DIVERGENCES
from falsifiers.support.strategies import HALVES, IGNORED, KdCase, kd_cases

SCATTERED = KdCase(torch.arange(6.0).view(1, 3, 2), torch.ones(1, 3, 2), torch.tensor([[0, IGNORED, 1]]))
"""Scored positions that are no neighbours."""


@example(case=SCATTERED, dtypes=[torch.float32, torch.float64])
@given(case=kd_cases(dtype=torch.float32, logits=HALVES), dtypes=st.permutations([torch.float64, torch.float32]))
def falsify_wider_dtype_is_used(subject: Any, device: str, case: KdCase, dtypes: list[torch.dtype]) -> None:
    mixed = case.but(student=case.student.to(dtypes[0]), teacher=case.teacher.to(dtypes[1]))
    loss = mixed.loss(subject, device)
    assert (loss.sum.dtype, loss.count.dtype) == (torch.float64, torch.int64), (
        f"sum and count are {loss.sum.dtype} and {loss.count.dtype}; expected float64 and int64"
    )
    assert_loss_is_the_oracles(subject, mixed, device)
    gradient = mixed.gradient(subject, device)
    assert gradient.dtype is dtypes[0], f"the gradient is {gradient.dtype}; expected the student's, {dtypes[0]}"


VOCABULARY = 152_064
ALLOWED = 4e-6  # nats: half a unit of a float32 logit of 64. The softmax of torch is off by 2e-5 at these logits
OF_SOFTMAX = 2e-5
BETA = 0.3


@given(
    divergence=st.sampled_from(sorted(DIVERGENCES)),
    seed=st.integers(0, 2**16),
    rows=st.integers(3, 7),
    unscored=st.integers(0, 2),
)
def falsify_long_rows(subject: Any, device: str, divergence: str, seed: int, rows: int, unscored: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    student_BTV, teacher_BTV = 5 * torch.randn(2, 1, rows, VOCABULARY, generator=generator)
    labels_BT = torch.randint(VOCABULARY, (1, rows), generator=generator)
    labels_BT[0, torch.randperm(rows, generator=generator)[:unscored]] = IGNORED
    weights = subject.Weights(temperature=1.0, ce_weight=0.5, kd_weight=0.5, divergence=divergence, beta=BETA)
    tensors = (each.to(device) for each in (student_BTV, teacher_BTV, labels_BT))
    seen = subject.loss_by_blocks(*tensors, weights, ignore_index=IGNORED, scale=1.0, metrics=True)
    leaf_BTV, scored = student_BTV.double().requires_grad_(), labels_BT != IGNORED
    expected = _expected(leaf_BTV[scored], teacher_BTV[scored].double(), labels_BT[scored], divergence)
    for name, wanted_N in expected.items():
        error = (getattr(seen, f"{name}_P").cpu()[scored[0]] - wanted_N).abs().max().item()
        assert error <= ALLOWED, f"{name} of {VOCABULARY} tokens is off by {error:.2g} nats; allowed are {ALLOWED}"
    (expected["cross_entropy"] + expected["divergence"]).sum().mul(0.5).backward()
    apart = (seen.gradient_BTV.cpu() - leaf_BTV.grad).abs().max().item()
    assert apart <= OF_SOFTMAX, f"{rows} rows, {unscored} unscored: the gradient is off by {apart:.2g} in one element"


def _expected(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, divergence: str) -> dict[str, Tensor]:
    log_p_NV, log_q_NV = teacher_NV.log_softmax(-1), student_NV.log_softmax(-1)
    return {
        "cross_entropy": -log_q_NV.gather(1, labels_N[:, None])[:, 0],
        "divergence": DIVERGENCES[divergence].textbook(log_p_NV, log_q_NV, BETA),
        **dict.fromkeys(("kl_at_1", "kl"), DIVERGENCES["forward_kl"].textbook(log_p_NV, log_q_NV, BETA)),
        "teacher_cross_entropy": -log_p_NV.gather(1, labels_N[:, None])[:, 0],
        "teacher_entropy": -(log_p_NV.exp() * log_p_NV).sum(-1),
    }
