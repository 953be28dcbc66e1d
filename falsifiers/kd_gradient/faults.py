"""Faulty distillation losses and closed-form gradients. `original` is the replaced function."""

from typing import Any

from torch import Tensor

from falsifiers.kd_loss.faults import divergence, with_term


def divergence_clamped(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    return with_term(
        original, *tensors, term=lambda log_p, log_q: divergence(log_p, log_q).sum(-1).clamp_min(0.0), **settings
    )


def gradient_of_mean(original: Any, *tensors: Tensor, **settings: Any) -> Tensor:
    scored = tensors[2] != settings.get("ignore_index", -100)
    gradient: Tensor = original(*tensors, **settings)
    mean: Tensor = gradient / scored.sum().clamp_min(1)
    return mean


def last_element_only(original: Any, *tensors: Tensor, **settings: Any) -> Tensor:
    gradient: Tensor = original(*tensors, **settings)
    gradient[:-1] = 0
    return gradient


IGNORED = -100


def vocabularies_unchecked(original: Any, student: Tensor, teacher: Tensor, *others: Tensor, **settings: Any) -> Any:
    V = min(student.shape[-1], teacher.shape[-1])
    return original(student[..., :V], teacher[..., :V], *others, **settings)


def temperature_raised(original: Any, *tensors: Tensor, temperature: Any, **rest: Any) -> Any:
    return original(*tensors, temperature=max(temperature, 1e-4), **rest)


def labels_outside_left_out(original: Any, student: Tensor, teacher: Tensor, labels: Tensor, **settings: Any) -> Any:
    ignored = settings.get("ignore_index", IGNORED)
    return original(student, teacher, labels.where(labels < student.shape[-1], ignored), **settings)
