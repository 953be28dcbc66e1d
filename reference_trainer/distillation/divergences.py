"""Divergences of a teacher from a student, one row function each: nats per row, and the gradient in place.

A row function takes a block of rows of scaled logits, s / tau and t / tau, each row shifted to a maximum of 0, and a
spare block. It returns the nats of each row, float64 [C], and leaves the derivative of those nats by s / tau in the
student's block. The other two blocks are overwritten. p and q are the softmax of t / tau and s / tau.

A token that the first distribution of a divergence gives no mass (a logit of -inf) has no term. If the second one gives
it none where the first gives it some, the row's nats are +inf and the gradient is finite.

Shape letters: C rows of a block, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["RowFunction", "cross_entropy", "forward_kl"]

RowFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


def forward_kl(student_CV: Tensor, teacher_CV: Tensor, spare_CV: Tensor) -> Tensor:
    """Return KL(p || q) = sum p (log p - log q); the derivative is q - p.

    Source: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2.
    """
    gap_CV = _gap(teacher_CV, student_CV, spare_CV)
    _, log_q_C = _softmax_in_place(student_CV)
    total_C, log_p_C = _softmax_in_place(teacher_CV)
    nats_C = _expectation(teacher_CV, gap_CV).div_(total_C).add_(log_p_C).sub_(log_q_C)
    student_CV.sub_(teacher_CV)
    return nats_C


def cross_entropy(student_CV: Tensor, labels_C1: Tensor, gradient_CV: Tensor) -> Tensor:
    """Return -log softmax(s)[y] of unscaled rows; `gradient_CV` gets softmax(s) - onehot(y), the rows are unchanged."""
    logit_C1 = student_CV.gather(1, labels_C1)
    torch.softmax(student_CV, -1, out=gradient_CV)
    _, log_q_C = _largest(gradient_CV)
    gradient_CV.scatter_(1, labels_C1, gradient_CV.gather(1, labels_C1).sub_(1))
    return -(logit_C1[:, 0] + log_q_C)


def _softmax_in_place(logits_CV: Tensor) -> tuple[Tensor, Tensor]:
    torch.softmax(logits_CV, -1, out=logits_CV)
    return _largest(logits_CV)


def _largest(probability_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of each row and the logarithm of its largest probability, which belongs to the logit 0: float64.

    The sum is not exactly 1, because the kernel normalises a long row in its own dtype.
    """
    total_C = probability_CV.sum(-1, dtype=torch.float64)
    return total_C, (probability_CV.amax(-1) / total_C).log()


def _gap(first_CV: Tensor, second_CV: Tensor, out_CV: Tensor) -> Tensor:
    """Return first - second; 0 where the first has no mass, +inf where only the second has none."""
    return torch.sub(first_CV, second_CV, out=out_CV).nan_to_num_(nan=0.0, posinf=math.inf, neginf=0.0)


def _expectation(probability_CV: Tensor, values_CV: Tensor) -> Tensor:
    """Return the sum of probability * value of each row, float64; `values_CV` is overwritten.

    A probability that underflows is still positive: 0 * inf is +inf here.
    """
    values_CV.mul_(probability_CV).nan_to_num_(nan=math.inf, posinf=math.inf)
    return values_CV.sum(-1, dtype=torch.float64)
