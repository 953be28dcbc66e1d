"""Float64 oracles of the divergences of a student from its teacher, and their tolerances.

A row is a sequence of V logits, divided by the temperature here; values are in nats, without the factor tau^2. p is the
teacher, q the student, beta the teacher's share of their mixture.
Source: Agarwal et al. 2024, arXiv:2306.13649, equation 1.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import torch
from torch import Tensor

from falsifiers.support.oracles import Row, log_softmax, log_softmax_error


def kl(log_a: Sequence[float], log_b: Sequence[float]) -> float:
    """Return KL(a || b): no term where a is 0, +inf where only b is."""
    pairs = zip(log_a, log_b, strict=True)
    return math.fsum(math.inf if y == -math.inf else math.exp(x) * (x - y) for x, y in pairs if x > -math.inf)


def log_over_mixture(log_p: Sequence[float], log_q: Sequence[float], share: float) -> list[tuple[float, float]]:
    """Return log p - log m and log q - log m of each token, with m = share p + (1 - share) q; 0 where p and q are 0.

    They are formed with 60 digits, because each is about as small as the share of the other distribution.
    """
    with localcontext(prec=60):
        return [_over_mixture(Decimal(x), Decimal(y), Decimal(share)) for x, y in zip(log_p, log_q, strict=True)]


def _over_mixture(x: Decimal, y: Decimal, share: Decimal) -> tuple[float, float]:
    mixture = share * x.exp() + (1 - share) * y.exp()
    return (float(x - mixture.ln()), float(y - mixture.ln())) if mixture else (0.0, 0.0)


def _mean(log_a: Sequence[float], values: Sequence[float]) -> float:
    """Return the mean of the values under a: no term where a is 0."""
    return math.fsum(math.exp(x) * value for x, value in zip(log_a, values, strict=True) if x > -math.inf)


def _jensen_shannon(log_p: Sequence[float], log_q: Sequence[float], beta: float) -> float:
    if beta in (0, 1):
        return kl(log_q, log_p) if beta else kl(log_p, log_q)
    of_p, of_q = zip(*log_over_mixture(log_p, log_q, beta), strict=True)
    return beta * _mean(log_p, of_p) + (1 - beta) * _mean(log_q, of_q)


def _forward_derivative(student: Row, teacher: Row, temperature: float, beta: float) -> list[float]:
    logs = log_softmax(student, temperature), log_softmax(teacher, temperature)
    return [math.exp(y) - math.exp(x) for y, x in zip(*logs, strict=True)]


def _reverse_derivative(student: Row, teacher: Row, temperature: float, beta: float) -> list[float]:
    """Return the derivative of KL(student || teacher).

    At a token that only the teacher bans, it takes the student's logit, less the row's largest, for the teacher's.
    """
    return _centred(log_softmax(student, temperature), _gaps(student, teacher, temperature))


def _jensen_shannon_derivative(student: Row, teacher: Row, temperature: float, beta: float) -> list[float]:
    if beta in (0, 1):
        return (_reverse_derivative if beta else _forward_derivative)(student, teacher, temperature, beta)
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    ratios = [max(of_q, -sys.float_info.max) for _, of_q in log_over_mixture(log_p, log_q, beta)]
    return [(1 - beta) * each for each in _centred(log_q, ratios)]


def _centred(log_q: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return q (v - sum q v)."""
    q = [math.exp(y) for y in log_q]
    mean = math.fsum(a * b for a, b in zip(q, values, strict=True))
    return [a * (b - mean) for a, b in zip(q, values, strict=True)]


def _torch_kl(log_a: Tensor, log_b: Tensor, beta: float = 0.0) -> Tensor:
    is_zero = log_a.isneginf()
    log_a = log_a.masked_fill(is_zero, 0.0)  # before the product, whose derivative would be NaN
    return (log_a.exp() * (log_a - log_b)).masked_fill(is_zero, 0.0).sum(-1)


def _torch_jensen_shannon(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
    if beta in (0, 1):
        return _torch_kl(log_q, log_p) if beta else _torch_kl(log_p, log_q)
    log_m = torch.logaddexp(log_p + math.log(beta), log_q + math.log1p(-beta))
    return beta * _torch_kl(log_p, log_m) + (1 - beta) * _torch_kl(log_q, log_m)


@dataclass(frozen=True, slots=True)
class Oracle:
    """A divergence from its definition.

    value: of log p and log q, beta; derivative: of student, teacher, temperature, beta, by each student logit over the
    temperature; textbook: of tensors log p and log q, beta, by differentiable operations.
    betas: those that it is tried at.
    """

    value: Callable[[Sequence[float], Sequence[float], float], float]
    derivative: Callable[[Row, Row, float, float], list[float]]
    textbook: Callable[[Tensor, Tensor, float], Tensor]
    betas: tuple[float, ...] = (0.5,)


DIVERGENCES = {
    "forward_kl": Oracle(lambda log_p, log_q, _: kl(log_p, log_q), _forward_derivative, _torch_kl),
    "reverse_kl": Oracle(
        lambda log_p, log_q, _: kl(log_q, log_p), _reverse_derivative, lambda log_p, log_q, _: _torch_kl(log_q, log_p)
    ),
    "jensen_shannon": Oracle(
        _jensen_shannon, _jensen_shannon_derivative, _torch_jensen_shannon, (0.5, 0.1, 0.0, 1.0, 0, 1, 0.9, 1e-3)
    ),
}
"""The oracle of each divergence of the trainer."""


def row_divergence(student: Row, teacher: Row, temperature: float, name: str, beta: float) -> float:
    return DIVERGENCES[name].value(log_softmax(teacher, temperature), log_softmax(student, temperature), beta)


def row_derivative(student: Row, teacher: Row, temperature: float, name: str, beta: float) -> list[float]:
    """Return the derivative of `row_divergence` by each student logit over the temperature."""
    return DIVERGENCES[name].derivative(student, teacher, temperature, beta)


def _gaps(student: Row, teacher: Row, temperature: float) -> list[float]:
    s, t = ([(x - max(row)) / temperature for x in row] for row in (student, teacher))
    return [a - b if min(a, b) > -math.inf else 0.0 for a, b in zip(s, t, strict=True)]


def allowed_divergence(student: Row, teacher: Row, temperature: float, unit: float) -> float:
    """Return the largest rounding error of `row_divergence` in nats, for arithmetic with this unit roundoff.

    Errors of the two logarithms are weighted by probabilities, which sum to 1; an error of a logarithm is also an error
    of its probability, weighted by the difference of the logarithms. Products and sums add (V + 4)u of that.
    """
    logs, spread = _errors(student, teacher, temperature, unit), _spread(student, teacher, temperature)
    return logs + (logs + 2 * unit * (len(student) + 4)) * spread + unit


def allowed_derivative(student: Row, teacher: Row, temperature: float, unit: float) -> float:
    """Return the largest rounding error of an element of `row_derivative`, whose mean errs as the divergence does."""
    return 2 * allowed_divergence(student, teacher, temperature, unit) + 4 * unit


def _errors(student: Row, teacher: Row, temperature: float, unit: float) -> float:
    return sum(log_softmax_error(row, temperature, unit) for row in (student, teacher))


def _spread(student: Row, teacher: Row, temperature: float) -> float:
    """Return the sum of (p + q) |log p - log q| over the tokens that neither model bans."""
    pairs = zip(log_softmax(teacher, temperature), log_softmax(student, temperature), strict=True)
    return math.fsum((math.exp(x) + math.exp(y)) * abs(x - y) for x, y in pairs if min(x, y) > -math.inf)
