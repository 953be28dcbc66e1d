"""Faulty divergences as other systems shipped them. `original` is the replaced function."""

import math
from typing import Any

import torch
from torch import Tensor

from falsifiers.kd_loss.faults import divergence as kl_terms
from falsifiers.kd_loss.faults import with_term

SWAPPED = {"forward_kl": "reverse_kl", "reverse_kl": "forward_kl"}


def _jensen_shannon(original: Any, log_mixture: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Return the loss with the mixture `log_mixture(log p, log q, beta)`."""
    name, beta = settings.get("divergence", "forward_kl"), settings.get("beta", 0.5)
    if name != "jensen_shannon" or beta in (0, 1):
        return original(*tensors, **settings)

    def term(log_p: Tensor, log_q: Tensor) -> Tensor:
        log_m = log_mixture(log_p, log_q, beta)
        return beta * kl_terms(log_p, log_m) + (1 - beta) * kl_terms(log_q, log_m)

    return with_term(original, *tensors, term=term, **settings)


def mixture_weights_swapped(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    def log_mixture(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
        return torch.logaddexp(log_p + math.log(1 - beta), log_q + math.log(beta))

    return _jensen_shannon(original, log_mixture, *tensors, **settings)


def mixture_in_log_space(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    def log_mixture(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
        return beta * log_p + (1 - beta) * log_q

    return _jensen_shannon(original, log_mixture, *tensors, **settings)


def mixture_of_probabilities(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    def log_mixture(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
        return (beta * log_p.exp() + (1 - beta) * log_q.exp()).log()

    return _jensen_shannon(original, log_mixture, *tensors, **settings)


def arguments_swapped(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    name, beta = settings.get("divergence", "forward_kl"), settings.get("beta", 0.5)
    return original(*tensors, **{**settings, "divergence": SWAPPED.get(name, name), "beta": 1 - beta})


def entropy_dropped(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    if settings.get("divergence") != "reverse_kl":
        return original(*tensors, **settings)

    def term(log_p: Tensor, log_q: Tensor) -> Tensor:
        return torch.where(log_q.isinf(), 0.0, -log_q.exp() * log_p)

    return with_term(original, *tensors, term=term, **settings)


def divergence_ignored(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    return original(*tensors, **{**settings, "divergence": "forward_kl"})


def gradient_through_probabilities(
    original: Any, student: Tensor, teacher: Tensor, labels: Tensor, **settings: Any
) -> Any:
    if settings.get("divergence") != "reverse_kl":
        return original(student, teacher, labels, **settings)
    tau, leaf = settings["temperature"], student.detach().float().requires_grad_()
    scored = labels != settings.get("ignore_index", -100)
    q, p = (leaf[scored] / tau).softmax(-1), (teacher[scored].float() / tau).softmax(-1)
    (settings["kd_weight"] * tau**2 * (q * (q.log() - p.log())).sum()).backward()
    rest = original(student, teacher, labels, **{**settings, "kd_weight": 0.0})
    return rest + leaf.grad


def half_precision_arithmetic(original: Any, student: Tensor, teacher: Tensor, *rest: Any, **settings: Any) -> Any:
    tau = settings["temperature"]
    rounded = [(x / tau).to(x.dtype).float() * tau if x.dtype.itemsize < 4 else x for x in (student, teacher)]
    return original(*rounded, *rest, **settings)
