"""Losses as other systems shipped them, whole, for mutants that are more than one edit. Each is wrong on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SwappedSum:
    """What a replaced loss answers with."""

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
    """KL(student || teacher) in the loss, beside a gradient that belongs to KL(teacher || student)."""
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
    """The teacher's entropy is missing, and a batch without scored positions answers with a constant."""
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
    """Cross-entropy leaves padding out; the teacher's term runs over every position."""
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
    """log(max(p, 1e-9)): finite everywhere, and so wrong wherever a model is sure."""
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
    """The derivative of KL(student || teacher): right for the other direction."""
    leaf = student.detach().clone().requires_grad_()
    loss = reverse_kl_loss(
        leaf, teacher, labels, temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight, **rest
    )
    (gradient,) = torch.autograd.grad(loss.sum, leaf)
    return gradient


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(-1) if logits.dtype.itemsize < 4 else logits.log_softmax(-1)
