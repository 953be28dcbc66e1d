"""Faulty losses as other systems shipped them, for mutants that replace a whole function.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SwappedSum:
    """The result of a faulty loss: a sum in nats, and the number of scored positions."""

    sum: Tensor
    count: Tensor


def reverse_kl_loss(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    **rest: Any,
) -> SwappedSum:
    """Return a loss with KL(student || teacher), although the gradient is that of KL(teacher || student)."""
    keep = labels != rest.get("ignore_index", -100)
    log_q, log_p = _log_softmax(student[keep] / temperature), _log_softmax(teacher[keep].detach() / temperature)
    soft = (log_q.exp() * (log_q - log_p)).sum(-1)
    hard = -_log_softmax(student[keep]).gather(-1, labels[keep][:, None])[:, 0]
    return SwappedSum((ce_weight * hard + kd_weight * temperature**2 * soft).sum().double(), keep.sum())


def cross_entropy_called_forward_kl(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    **rest: Any,
) -> SwappedSum:
    """Return a loss without the teacher's entropy, and a constant for a batch without scored positions."""
    keep = labels != rest.get("ignore_index", -100)
    if not keep.any():
        return SwappedSum(torch.tensor(0.0, dtype=torch.float64, device=student.device), keep.sum())
    log_q = _log_softmax(student[keep] / temperature)
    p = (teacher[keep].detach() / temperature).softmax(-1)
    soft = -torch.masked_fill(p * log_q, student[keep].isinf(), 0.0).sum(-1)
    hard = -_log_softmax(student[keep]).gather(-1, labels[keep][:, None])[:, 0]
    return SwappedSum((ce_weight * hard + kd_weight * temperature**2 * soft).sum().double(), keep.sum())


def padding_in_the_teacher_term(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    **rest: Any,
) -> SwappedSum:
    """Return a loss whose cross-entropy leaves padding out but whose teacher term does not."""
    keep = labels != rest.get("ignore_index", -100)
    log_q, log_p = _log_softmax(student / temperature), _log_softmax(teacher.detach() / temperature)
    soft = (log_p.exp() * (log_p - log_q)).sum()
    hard = -_log_softmax(student[keep]).gather(-1, labels[keep][:, None]).sum()
    return SwappedSum((ce_weight * hard + kd_weight * temperature**2 * soft).double(), keep.sum())


def probabilities_clamped_in_the_logarithm(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    **rest: Any,
) -> SwappedSum:
    """Return a loss with log(max(p, 1e-9)): finite everywhere, and wrong for confident models."""
    keep = labels != rest.get("ignore_index", -100)
    p, q = (teacher[keep].detach() / temperature).softmax(-1), (student[keep] / temperature).softmax(-1)
    soft = (p * (p.clamp_min(1e-9).log() - q.clamp_min(1e-9).log())).sum(-1)
    hard = -student[keep].softmax(-1).clamp_min(1e-9).log().gather(-1, labels[keep][:, None])[:, 0]
    return SwappedSum((ce_weight * hard + kd_weight * temperature**2 * soft).sum().double(), keep.sum())


def reverse_kl_gradient(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
    **rest: Any,
) -> Tensor:
    """Return the derivative of the loss with KL(student || teacher)."""
    leaf = student.detach().clone().requires_grad_()
    loss = reverse_kl_loss(
        leaf, teacher, labels, temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight, **rest
    )
    (gradient,) = torch.autograd.grad(loss.sum, leaf)
    return gradient


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(-1) if logits.dtype.itemsize < 4 else logits.log_softmax(-1)
