"""Distillation losses and gradients that depend on more than their arguments, or change them.

`original` is the replaced function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from falsifiers.kd_loss.faults import divergence, with_term

_BUFFERS: dict[Any, Tensor] = {}


def teacher_not_detached(original: Any, student: Tensor, teacher: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss with the teacher in its graph."""
    loss = original(student, teacher, *others, **settings)
    return replace(loss, sum=loss.sum + 0 * teacher.double().sum())


def student_written_in_place(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss and subtract 1 from the caller's logits."""
    loss = original(student, *others, **settings)
    student.data.sub_(1)
    return loss


def terms_summed_by_a_product(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Return the loss whose terms are summed by a product, which autocast narrows."""

    def term(log_p: Tensor, log_q: Tensor) -> Tensor:
        terms = divergence(log_p, log_q)
        return torch.einsum("nv,nv->n", terms, torch.ones_like(terms))

    return with_term(original, *tensors, term=term, **settings)


def factor_on_the_default_device(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Tensor:
    """Return the gradient times a factor on torch's default device."""
    gradient: Tensor = original(student, *others, **settings)
    return gradient * torch.ones(gradient.shape, dtype=gradient.dtype)


def overlapping_memory(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Tensor:
    """Return the gradient with the strides of the student, whose elements overlap if it was expanded."""
    gradient: Tensor = original(student, *others, **settings)
    out = torch.empty_strided(student.shape, student.stride(), dtype=gradient.dtype, device=gradient.device)
    for position in torch.ones_like(gradient).nonzero().tolist():
        out[tuple(position)] = gradient[tuple(position)]
    return out


def cached_by_identity(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss of an earlier call with the same tensor, whatever it contains now."""
    if not hasattr(student, "earlier_loss"):
        student.earlier_loss = original(student, *others, **settings)
    return student.earlier_loss


def buffer_reused(original: Any, *tensors: Tensor, **settings: Any) -> Tensor:
    """Return the gradient in one buffer for all gradients of a shape and dtype."""
    gradient: Tensor = original(*tensors, **settings)
    return _BUFFERS.setdefault((gradient.shape, gradient.dtype), gradient).copy_(gradient)


def made_in_inference_mode(original: Any, *tensors: Tensor, **settings: Any) -> Tensor:
    """Return the gradient as an inference tensor, which cannot be changed in place."""
    gradient: Tensor = original(*tensors, **settings)
    with torch.inference_mode():
        return gradient.clone()


def weights_on_the_default_device(
    original: Any, *tensors: Tensor, ce_weight: float, kd_weight: float, **rest: Any
) -> Any:
    """Return the loss weighted by a tensor on torch's default device."""
    hard = original(*tensors, ce_weight=1.0, kd_weight=0.0, **rest)
    soft = original(*tensors, ce_weight=0.0, kd_weight=1.0, **rest)
    weights = torch.tensor([ce_weight, kd_weight], dtype=torch.float64)
    return replace(hard, sum=(torch.stack([hard.sum, soft.sum]) * weights).sum())


def loss_formed_twice(original: Any, *args: Any, **settings: Any) -> Any:
    """Form the loss a second time, as a metric that nothing reads."""
    original(*args, **settings)
    return original(*args, **settings)


def on_all_threads(original: Any, *args: Any, **settings: Any) -> Any:
    """Read the rows on as many threads as PyTorch has."""
    with mock.patch.object(torch, "set_num_threads", lambda count: None):
        return original(*args, **settings)


def threads_left_at_one(original: Any, *args: Any, **settings: Any) -> Any:
    """Leave the process with one thread."""
    rows = original(*args, **settings)
    torch.set_num_threads(1)
    return rows
