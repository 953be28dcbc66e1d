"""Compute cross-entropy and divergences of blocks of rows, with their derivatives, in place.

A divergence takes blocks of rows of scaled logits, s / tau and t / tau, each row shifted to a maximum of 0, and a spare
block. It returns the divergence of every row in nats, float64 [C], and writes its derivative by s / tau to the
student's block. The other two blocks are overwritten. p and q are the softmax of t / tau and s / tau.

KL(a || b) = sum a (log a - log b). A token of probability 0 in `a` (a logit of -inf) has no term. A token of
probability 0 in `b` alone makes KL +inf. The derivative is always finite: for KL(q || p), t = s is used at such tokens.
beta is the teacher's share of the mixture of p and q; forward and reverse KL ignore it.

Shape letters: C rows of a block, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def cross_entropy(logits_CV: Tensor, labels_C1: Tensor, gradient_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log softmax(s)[y] of rows, and their largest log-probability; both float64 [C].

    Each row must be shifted to a maximum of 0, and must not be divided by tau; the rows are not changed. Write
    softmax(s) - onehot(y) to `gradient_CV`.
    """
    logit_C1 = logits_CV.gather(1, labels_C1)
    torch.softmax(logits_CV, -1, out=gradient_CV)
    _, log_q_C = _sum_and_largest_log(gradient_CV)
    gradient_CV.scatter_(1, labels_C1, gradient_CV.gather(1, labels_C1) - 1)
    return -(logit_C1[:, 0] + log_q_C), log_q_C


def teacher_metrics(
    student_CV: Tensor, teacher_CV: Tensor, labels_C1: Tensor, log_q_C: Tensor, spare_CV: Tensor, other_CV: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return KL(p || q), the teacher's cross-entropy and its entropy.

    Each row must be shifted to a maximum of 0, and must not be divided by tau; the rows are not changed.
    log_q_C: the largest log-probability of the student, as `cross_entropy` returns it.
    """
    # The largest logit is 0, so log p = t + log_p and log q = s + log_q, where log_p and log_q are the largest
    # log-probabilities of the row. KL(p || q) is the mean of t - s under p, plus log_p - log_q.
    infinite_C = _difference_and_infinities(teacher_CV, student_CV, spare_CV)
    total_C, log_p_C = _sum_and_largest_log(torch.softmax(teacher_CV, -1, out=other_CV))
    kl_C = _mean(spare_CV.mul_(other_CV), total_C) + log_p_C - log_q_C + infinite_C
    hard_C = -(teacher_CV.gather(1, labels_C1)[:, 0] + log_p_C)
    terms_CV = torch.mul(teacher_CV, other_CV, out=spare_CV).nan_to_num_()  # -inf * 0 is NaN; its term is 0
    # The entropy is -(mean of t under p + log_p).
    return kl_C, hard_C, -(_mean(terms_CV, total_C) + log_p_C)


def agreement(student_CV: Tensor, teacher_CV: Tensor, spare_CV: Tensor) -> Tensor:
    """Return 1 for every row in which both models have the same first most probable token, else 0; float64 [C]."""
    # The largest logit of a row is 0. Tokens are numbered V, V - 1, ..., 1, so the first token with the logit 0 has the
    # largest number. `argmax` takes three times as long on the CPU. The numbers are in the dtype of the rows, which is
    # exact up to 2^24 tokens in float32.
    from_last_V = torch.arange(student_CV.shape[-1], 0, -1, dtype=spare_CV.dtype, device=spare_CV.device)
    student_C, teacher_C = (
        torch.eq(logits_CV, 0, out=spare_CV).mul_(from_last_V).amax(-1) for logits_CV in (student_CV, teacher_CV)
    )
    return (student_C == teacher_C).double()


def forward_kl(student_CV: Tensor, teacher_CV: Tensor, spare_CV: Tensor, beta: float = 0.0) -> Tensor:
    """Return KL(p || q); the derivative is q - p.

    Source: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2.
    """
    infinite_C = _difference_and_infinities(teacher_CV, student_CV, spare_CV)
    _, log_q_C = _softmax(student_CV)
    total_C, log_p_C = _softmax(teacher_CV)
    student_CV.sub_(teacher_CV)  # the derivative
    return _mean(spare_CV.mul_(teacher_CV), total_C) + log_p_C - log_q_C + infinite_C


def reverse_kl(student_CV: Tensor, teacher_CV: Tensor, spare_CV: Tensor, beta: float = 1.0) -> Tensor:
    """Return KL(q || p); the derivative is q (d - sum q d) with d = s / tau - t / tau.

    Source: Gu et al. 2024, arXiv:2306.08543, section 2.
    """
    infinite_C = _difference_and_infinities(student_CV, teacher_CV, spare_CV)
    total_C, log_q_C = _softmax(student_CV)
    _, log_p_C = _softmax(teacher_CV)
    mean_C = _centre(spare_CV, student_CV, total_C, teacher_CV)
    student_CV.mul_(spare_CV)  # the derivative: `_centre` has left d - sum q d in the spare block
    return mean_C + log_q_C - log_p_C + infinite_C


def jensen_shannon(student_CV: Tensor, teacher_CV: Tensor, spare_CV: Tensor, beta: float) -> Tensor:
    """Return beta KL(p || m) + (1 - beta) KL(q || m) with m = beta p + (1 - beta) q: finite for 0 < beta < 1.

    At beta = 0 and 1 this expression is 0; there the divergence is the limit of the expression divided by beta or by
    1 - beta: KL(p || q) at beta = 0, KL(q || p) at beta = 1.
    The derivative is (1 - beta) q (d - sum q d) with d = log q - log m.
    Source: Agarwal et al. 2024, arXiv:2306.13649, equation 1; p is the teacher.
    """
    if beta == 0:
        return forward_kl(student_CV, teacher_CV, spare_CV)
    if beta == 1:
        return reverse_kl(student_CV, teacher_CV, spare_CV)
    gap_CV = torch.sub(teacher_CV, student_CV, out=spare_CV)
    total_q_C, log_q_C = _softmax(student_CV)
    total_p_C, log_p_C = _softmax(teacher_CV)
    # At a token of probability 0 the gap is made finite, so that 0 * gap is 0. The gap is NaN at a token whose logit is
    # -inf in both models.
    gap_CV.add_((log_p_C - log_q_C)[:, None]).nan_to_num_()
    p_over_m_CV, q_over_m_CV = _over_mixture(gap_CV, beta)
    kl_p_C = _mean(teacher_CV.mul_(p_over_m_CV), total_p_C)
    kl_q_C = _centre(q_over_m_CV, student_CV, total_q_C, teacher_CV)
    student_CV.mul_(q_over_m_CV).mul_(1 - beta)  # the derivative: `_centre` has left d - sum q d
    return beta * kl_p_C + (1 - beta) * kl_q_C


BY_NAME: Mapping[str, Callable[[Tensor, Tensor, Tensor, float], Tensor]] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jensen_shannon": jensen_shannon,
}
"""The functions of `objective.DIVERGENCES` by name."""


def _over_mixture(gap_CV: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Return log p - log m and log q - log m. `gap_CV` is log p - log q, and is overwritten.

    Let a be the distribution of p and q with the smaller share w, b the other one, and g = log a - log b. Then

        log b - log m = -log(1 + w (e^g - 1)),    log a - log m = g + (log b - log m).

    The first formula is exact also for g near 0. To avoid overflow for large g, let k = min(g, -log w). Then

        log b - log m = (k - g) - log(1 + w (e^k - 1) e^(k - g)),
        log a - log m =    k    - log(1 + w (e^k - 1) e^(k - g)).
    """
    share = max(min(beta, 1 - beta), torch.finfo(gap_CV.dtype).tiny)  # a smaller share would be 0 in this dtype
    is_p_larger = beta > 0.5
    if is_p_larger:
        gap_CV.neg_()
    k_CV = gap_CV.clamp_max(-math.log(share))
    k_minus_g_CV = k_CV - gap_CV
    torch.exp(k_minus_g_CV, out=gap_CV).mul_(k_CV.expm1()).mul_(share).log1p_()
    smaller_CV, larger_CV = k_CV.sub_(gap_CV), k_minus_g_CV.sub_(gap_CV)
    return (larger_CV, smaller_CV) if is_p_larger else (smaller_CV, larger_CV)


def _softmax(logits_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Replace the rows by their softmax; return the result of `_sum_and_largest_log`."""
    return _sum_and_largest_log(torch.softmax(logits_CV, -1, out=logits_CV))


def _sum_and_largest_log(probability_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of every row, and the log-probability of its most probable token, whose logit is 0; float64 [C].

    The sum is not exactly 1: the kernel of softmax sums a long row in the dtype of the row. Divide a mean by the sum.
    """
    total_C = probability_CV.sum(-1, dtype=torch.float64)
    return total_C, (probability_CV.amax(-1) / total_C).log()


def _difference_and_infinities(first_CV: Tensor, second_CV: Tensor, out_CV: Tensor) -> Tensor:
    """Write first - second, made finite. Return +inf for rows with a token at which only the second is -inf, else 0."""
    # The difference is NaN if both are -inf, -inf if only the first is, and +inf if only the second is. NaN becomes 0,
    # and -inf the lowest finite number, which has no weight in a mean under the first.
    torch.sub(first_CV, second_CV, out=out_CV).nan_to_num_(posinf=math.inf)
    infinite_C = torch.where(out_CV.amax(-1) == math.inf, math.inf, 0.0)
    out_CV.nan_to_num_(posinf=0.0)
    return infinite_C


def _mean(terms_CV: Tensor, total_C: Tensor) -> Tensor:
    """Return the mean: the sum of `terms_CV` (value * probability) divided by `total_C` (the sum of probabilities)."""
    return terms_CV.sum(-1, dtype=torch.float64) / total_C


def _centre(values_CV: Tensor, probability_CV: Tensor, total_C: Tensor, spare_CV: Tensor) -> Tensor:
    """Subtract from the values their mean under the probabilities, and return the mean; float64 [C]."""
    # The first subtraction is rounded, so a small mean remains. It is subtracted too, because the derivative must sum
    # to 0 over the vocabulary.
    mean_C = _mean(torch.mul(values_CV, probability_CV, out=spare_CV), total_C)
    torch.mul(values_CV.sub_(mean_C[:, None]), probability_CV, out=spare_CV)
    rest_C = _mean(spare_CV, total_C)
    values_CV.sub_(rest_C[:, None])
    return mean_C + rest_C
