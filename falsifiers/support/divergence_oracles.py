"""Float64 oracles of the divergences of a student from its teacher, in plain Python, and their tolerances.

A row is a sequence of V logits, divided by the temperature here; values are in nats, without the factor tau^2. `share`
is the teacher's share of the mixture, beta: 0 is KL(teacher || student), 1 is KL(student || teacher).
Source: Agarwal et al. 2024, arXiv:2306.13649, equation 1.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from decimal import Decimal, localcontext

from falsifiers.support.oracles import Row, log_softmax, log_softmax_error

SHARES = {"forward_kl": 0.0, "reverse_kl": 1.0}


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


def row_divergence(student: Row, teacher: Row, temperature: float, share: float) -> float:
    """Return the divergence of one row in nats."""
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    if share in (0, 1):
        return kl(log_q, log_p) if share else kl(log_p, log_q)
    of_p, of_q = zip(*log_over_mixture(log_p, log_q, share), strict=True)
    return share * _mean(log_p, of_p) + (1 - share) * _mean(log_q, of_q)


def row_derivative(student: Row, teacher: Row, temperature: float, share: float) -> list[float]:
    """Return the derivative of `row_divergence` by each student logit over the temperature.

    At a token that only the second distribution of a KL bans, that of KL(student || teacher) takes the student's
    logit, less the row's largest, for the teacher's.
    """
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    q = [math.exp(y) for y in log_q]
    if share == 0:
        return [y - math.exp(x) for y, x in zip(q, log_p, strict=True)]
    if share == 1:
        log_ratio = _gaps(student, teacher, temperature)
    else:
        log_ratio = [max(of_q, -sys.float_info.max) for _, of_q in log_over_mixture(log_p, log_q, share)]
    mean = math.fsum(a * b for a, b in zip(q, log_ratio, strict=True))
    weight = 1.0 if share == 1 else 1 - share
    return [weight * a * (b - mean) for a, b in zip(q, log_ratio, strict=True)]


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
