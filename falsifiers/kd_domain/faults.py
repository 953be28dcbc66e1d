"""Distillation losses that are wrong at the limits of the domain: masks, infinities, padding."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from falsifiers.kd_loss.faults import divergence, with_term

IGNORED = -100


def padding_in_the_teacher_term(
    original: Any,
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    *,
    temperature: float,
    kd_weight: float,
    **rest: Any,
) -> Any:
    hard = original(student, teacher, labels, temperature=temperature, kd_weight=0.0, **rest)
    log_p, log_q = ((logits / temperature).log_softmax(-1) for logits in (teacher.detach(), student))
    soft = divergence(log_p, log_q).double().sum()
    return replace(hard, sum=hard.sum + kd_weight * temperature**2 * soft)


def mean_of_nothing(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    loss = original(*tensors, **settings)
    return replace(loss, sum=loss.sum / loss.count * loss.count)


def constant_where_nothing_is_scored(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    loss = original(*tensors, **settings)
    return loss if loss.count else replace(loss, sum=loss.sum.detach())


def banned_tokens_give_nan(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    return with_term(original, *tensors, term=lambda log_p, log_q: log_p.exp() * (log_p - log_q), **settings)


def shorter_vocabulary_padded_with_zeros(
    original: Any, student: Tensor, teacher: Tensor, *others: Tensor, **settings: Any
) -> Any:
    missing = max(teacher.shape[-1] - student.shape[-1], 0)
    return original(torch.nn.functional.pad(student, (0, missing)), teacher, *others, **settings)


def maximum_not_subtracted(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    return with_term(original, *tensors, term=divergence, **settings)
