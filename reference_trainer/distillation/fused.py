"""Cross-entropy, forward KL and their gradient for a chunk of logits, in one Triton kernel.

A program of the kernel handles one row, in two passes over tiles of the vocabulary:

1. The first pass computes the log-sum-exp of student and teacher, online (Milakov & Gimelshein 2018,
   arXiv:1805.02867).
2. The second pass sums the divergence, and overwrites the student's logits by their gradient.

The module imports triton, so `heads` imports the module only if `heads.is_fused` returns True. Shape letters: C rows of
a chunk, V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_trainer.distillation.objective import Weights

TILE = 4096
"""The largest number of tokens that a program reads at once."""


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def row_loss(  # type: ignore[no-untyped-def]  # triton reads annotations as its types
    student,
    teacher,
    labels,
    scored,
    scale,
    numbers,
    vocabulary,
    rows,
    student_stride,
    teacher_stride,
    tau,
    ce_weight,
    kd_weight,
    cap,
    HAS_CAP: tl.constexpr,
    TILE: tl.constexpr,
):
    """Compute one row. Arguments: as of `fused_loss`, sizes, strides, and the result `numbers` [4, rows]."""
    row = tl.program_id(0).to(tl.int64)
    student += row * student_stride
    teacher += row * teacher_stride
    offsets = tl.arange(0, TILE)
    label = tl.load(labels + row)
    label_logit = tl.load(student + label).to(tl.float32)
    minus_inf = float("-inf")
    # Pass 1. With the maximum m so far, sum exp(x - m) and exp((x - m) / tau) over the logits x so far. When a tile
    # raises the maximum to m', multiply the sums by exp(m - m') and exp((m - m') / tau).
    s_max, t_max = minus_inf, minus_inf
    s_sum, s_sum_tau, t_sum_tau = 0.0, 0.0, 0.0
    for begin in range(0, vocabulary, TILE):
        tokens = begin + offsets
        s = tl.load(student + tokens, mask=tokens < vocabulary, other=minus_inf).to(tl.float32)
        t = tl.load(teacher + tokens, mask=tokens < vocabulary, other=minus_inf).to(tl.float32)
        s_next, t_next = tl.maximum(s_max, tl.max(s, 0)), tl.maximum(t_max, tl.max(t, 0))
        # Before the first finite logit the maximum is -inf, and -inf - -inf would be NaN.
        s_shift, t_shift = tl.where(s_next == minus_inf, 0.0, s_next), tl.where(t_next == minus_inf, 0.0, t_next)
        s_sum = s_sum * tl.exp(s_max - s_shift) + tl.sum(tl.exp(s - s_shift), 0)
        s_sum_tau = s_sum_tau * tl.exp((s_max - s_shift) / tau) + tl.sum(tl.exp((s - s_shift) / tau), 0)
        t_sum_tau = t_sum_tau * tl.exp((t_max - t_shift) / tau) + tl.sum(tl.exp((t - t_shift) / tau), 0)
        s_max, t_max = s_next, t_next
    # Pass 2. For the capped logits x, the derivative is
    # kd_weight * tau * (q - p) + ce_weight * (softmax(x) - onehot(label)).
    log_s_sum, log_t_sum = tl.log(s_sum_tau), tl.log(t_sum_tau)
    is_scored, factor = tl.load(scored + row), tl.load(scale)
    divergence = 0.0
    for begin in range(0, vocabulary, TILE):
        tokens = begin + offsets
        s = tl.load(student + tokens, mask=tokens < vocabulary, other=minus_inf).to(tl.float32)
        t = tl.load(teacher + tokens, mask=tokens < vocabulary, other=minus_inf).to(tl.float32)
        log_q, log_p = (s - s_max) / tau - log_s_sum, (t - t_max) / tau - log_t_sum
        q, p = tl.exp(log_q), tl.exp(log_p)
        divergence += tl.sum(tl.where(p > 0, p * (log_p - log_q), 0.0), 0)
        ce_gradient = tl.exp(s - s_max) / s_sum - tl.where(tokens == label, 1.0, 0.0)
        gradient = (kd_weight * tau * (q - p) + ce_weight * ce_gradient) * factor
        if HAS_CAP:  # x = cap * tanh(y / cap) has the derivative 1 - (x / cap)^2
            gradient *= 1 - (s / cap) * (s / cap)
        gradient = tl.where(is_scored, gradient, 0.0)
        tl.store(student + tokens, gradient.to(student.dtype.element_ty), mask=tokens < vocabulary)
    # tl.max ignores NaN, but the sums do not. If a logit is NaN, store NaN as the largest logit: the caller refuses it.
    is_nan_s, is_nan_t = (s_sum != s_sum) & (s_max < float("inf")), (t_sum_tau != t_sum_tau) & (t_max < float("inf"))
    tl.store(numbers + row, tl.log(s_sum) + s_max - label_logit)
    tl.store(numbers + rows + row, divergence)
    tl.store(numbers + 2 * rows + row, tl.where(is_nan_s, float("nan"), s_max))
    tl.store(numbers + 3 * rows + row, tl.where(is_nan_t, float("nan"), t_max))


def fused_loss(
    student_CV: Tensor,
    teacher_CV: Tensor,
    labels_C: Tensor,
    scored_C: Tensor,
    weights: Weights,
    scale: float | Tensor,
    cap: float | None = None,
) -> Tensor:
    """Return cross-entropy and forward KL of each row, and overwrite the student's logits by their gradient.

    The gradient is `scale` times the gradient of ce_weight * cross-entropy + kd_weight * tau^2 * KL. It is computed in
    float32 and rounded to the dtype of the logits. In unscored rows, results and gradient are 0.

    Args:
        student_CV: Logits, floating but not float64, with a contiguous last axis; overwritten.
        teacher_CV: Logits of the teacher on the same device, floating but not float64, with a contiguous last axis. If
            kd_weight is 0, finite logits have no effect on loss and gradient, and may be `student_CV`.
        labels_C: int64; a label outside the vocabulary is read as the first or last token.
        scored_C: Whether a row is scored, bool.
        weights: The arguments of the loss, with the divergence "forward_kl".
        scale: The factor of the gradient; a tensor must be on the device of the logits.
        cap: The soft cap of the student's logits, as in `losses.BlockwiseLoss`.

    Returns:
        float64 [4, C]: the cross-entropy in nats, KL(teacher || student) at the temperature in nats, the largest logit
        of the student, and the largest logit of the teacher. A term whose weight is 0 is 0.
    """
    C, V = student_CV.shape
    numbers_4C = torch.empty(4, C, dtype=torch.float32, device=student_CV.device)
    scale_1 = torch.zeros(1, dtype=torch.float32, device=student_CV.device) + scale
    row_loss[(C,)](
        student_CV,
        teacher_CV,
        labels_C.clamp(0, V - 1),
        scored_C,
        scale_1,
        numbers_4C,
        V,
        C,
        student_CV.stride(0),
        teacher_CV.stride(0),
        float(weights.temperature),
        float(weights.ce_weight),
        float(weights.kd_weight),
        1.0 if cap is None else cap,
        HAS_CAP=cap is not None,
        TILE=min(TILE, triton.next_power_of_2(V)),
    )
    numbers_4C = numbers_4C.double()
    for term_C, weight in zip(numbers_4C, (weights.ce_weight, weights.kd_weight), strict=False):
        if not weight:
            term_C.zero_()  # not multiplied by 0: an infinite term would become NaN
    return numbers_4C.masked_fill_(~scored_C, 0)
