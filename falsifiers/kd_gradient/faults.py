"""Faulty distillation losses and closed-form gradients. `original` is the replaced function."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from falsifiers.kd_loss.faults import divergence, with_term


def divergence_clamped(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Return the loss with each row's divergence clamped at 0, where it loses its gradient."""
    return with_term(
        original, *tensors, term=lambda log_p, log_q: divergence(log_p, log_q).sum(-1).clamp_min(0.0), **settings
    )


def gradient_of_mean(original: Any, *tensors: Tensor, **settings: Any) -> Tensor:
    """Return the gradient of the mean over scored positions."""
    scored = tensors[2] != settings.get("ignore_index", -100)
    gradient: Tensor = original(*tensors, **settings)
    mean: Tensor = gradient / scored.sum().clamp_min(1)
    return mean


def teacher_temperature_missing(
    original: Any, student: Tensor, teacher: Tensor, labels: Tensor, *, temperature: float, **rest: Any
) -> Any:
    """Return the gradient that compares softmax(s/τ) with softmax(t)."""
    return original(student, teacher * temperature, labels, temperature=temperature, **rest)


def rounded_to_the_logits(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Tensor:
    """Return the gradient rounded to the dtype of the logits."""
    gradient: Tensor = original(student, *others, **settings)
    return gradient.to(student.dtype).to(gradient.dtype)


def gradient_scaled_in_place(original: Any, *args: Any, **settings: Any) -> Any:
    """Return the loss whose gradient is kept, and scaled again by each backward."""
    loss, kept = original(*args, **settings), [1.0]

    def scaled(incoming: Tensor) -> Tensor:
        kept[0] *= float(incoming)
        return incoming.new_tensor(kept[0])

    if loss.sum.requires_grad:
        loss.sum.register_hook(scaled)
    return loss


def rounded_before_scaling(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss whose gradient is rounded to the dtype of the logits before it is scaled."""
    leaf = student.detach().requires_grad_()
    loss = original(leaf, *others, **settings)
    if student.requires_grad:
        (rounded,) = torch.autograd.grad(loss.sum, leaf)
        finite = student.nan_to_num()
        scaled = ((finite - finite.detach()) * rounded).sum(dtype=loss.sum.dtype)
        return dataclasses.replace(loss, sum=loss.sum.detach() + scaled)
    return loss
