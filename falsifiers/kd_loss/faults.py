"""Faulty distillation losses and gradients as other systems shipped them.

`original` is the replaced function. Shape letters: N scored rows, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
Term = Callable[[Tensor, Tensor], Tensor]
"""The arguments of a term are the log-probabilities of teacher and student, floating [N, V]."""


def with_term(
    original: Any,
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    term: Term,
    temperature: float,
    kd_weight: float,
    widen: bool = True,
    **rest: Any,
) -> Any:
    """Return the loss with `term`, summed over rows and tokens, in the place of the divergence.

    The term is computed in float32 for half-precision logits, or in their own dtype without `widen`.
    """
    hard = original(student, teacher, labels, temperature=temperature, kd_weight=0.0, **rest)
    if not kd_weight:
        return hard
    keep = labels.long() != rest.get("ignore_index", IGNORED)
    rows = [
        logits[keep].float() if widen and logits.dtype.itemsize < 4 else logits[keep] for logits in (teacher, student)
    ]
    log_p, log_q = ((logits / temperature).log_softmax(-1) for logits in rows)
    return replace(hard, sum=hard.sum + kd_weight * temperature**2 * term(log_p.detach(), log_q).double().sum())


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return the terms [N, V] of KL(teacher || student)."""
    p = log_p.exp().clamp_min(torch.finfo(log_p.dtype).tiny)
    return torch.where(log_p.isinf(), 0.0, p * (log_p - log_q))


def reverse_kl_loss(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    return with_term(original, *tensors, term=lambda log_p, log_q: log_q.exp() * (log_q - log_p), **settings)


def cross_entropy_called_kl(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    return with_term(
        original, *tensors, term=lambda log_p, log_q: torch.where(log_p.isinf(), 0.0, -log_p.exp() * log_q), **settings
    )


def tau_squared_missing(original: Any, *tensors: Tensor, temperature: float, kd_weight: float, **rest: Any) -> Any:
    return original(*tensors, temperature=temperature, kd_weight=kd_weight / temperature**2, **rest)


def mean_over_vocabulary(original: Any, student: Tensor, *others: Tensor, kd_weight: float, **rest: Any) -> Any:
    return original(student, *others, kd_weight=kd_weight / student.shape[-1], **rest)


def weights_swapped(original: Any, *tensors: Tensor, ce_weight: float, kd_weight: float, **rest: Any) -> Any:
    return original(*tensors, ce_weight=kd_weight, kd_weight=ce_weight, **rest)


def temperature_twice(original: Any, *tensors: Tensor, temperature: float, **settings: Any) -> Any:
    def term(log_p: Tensor, log_q: Tensor) -> Tensor:
        return divergence(log_p, (log_q / temperature).log_softmax(-1))

    return with_term(original, *tensors, term=term, temperature=temperature, **settings)


def temperature_on_one_side(original: Any, *tensors: Tensor, temperature: float, **settings: Any) -> Any:
    def term(log_p: Tensor, log_q: Tensor) -> Tensor:
        return divergence(log_p, (log_q * temperature).log_softmax(-1))

    return with_term(original, *tensors, term=term, temperature=temperature, **settings)


def probabilities_clamped(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    def term(log_p: Tensor, log_q: Tensor) -> Tensor:
        p, q = log_p.exp(), log_q.exp()
        return p * (p.clamp_min(1e-9).log() - q.clamp_min(1e-9).log())

    return with_term(original, *tensors, term=term, **settings)


def half_precision_arithmetic(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    return with_term(original, *tensors, term=divergence, widen=False, **settings)


def ignore_index_unused(original: Any, *tensors: Tensor, ignore_index: int = IGNORED, **settings: Any) -> Any:
    return original(*tensors, **settings)


def tau_squared_in_gradient(original: Any, *tensors: Tensor, temperature: float, kd_weight: float, **rest: Any) -> Any:
    return original(*tensors, temperature=temperature, kd_weight=kd_weight * temperature, **rest)
