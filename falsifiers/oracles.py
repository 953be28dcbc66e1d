"""Slow restatements of the distillation loss, written from its equation in plain Python floats.

    L = sum over scored rows of  ce_weight * CE(s, y)  +  kd_weight * tau^2 * KL(softmax(t/tau) || softmax(s/tau))

Rows are lists of logits; everything is in nats. No tensor operation takes part in the arithmetic.
Source: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

Row = Sequence[float]

UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}


def log_softmax(row: Row, temperature: float = 1.0) -> list[float]:
    largest = max(row)
    scaled = [(z - largest) / temperature for z in row]
    log_total = math.log(math.fsum(math.exp(z) for z in scaled))
    return [z - log_total for z in scaled]


def softmax(row: Row, temperature: float = 1.0) -> list[float]:
    return [math.exp(z) for z in log_softmax(row, temperature)]


def cross_entropy(student: Row, label: int) -> float:
    return -log_softmax(student)[label]


def forward_kl(student: Row, teacher: Row, temperature: float) -> float:
    """KL(teacher || student): no term where the teacher has no mass, +inf where only the student has none."""
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    return math.fsum(
        math.inf if lq == -math.inf else math.exp(lp) * (lp - lq)
        for lp, lq in zip(log_p, log_q, strict=True)
        if lp > -math.inf
    )


def row_loss(
    student: Row, teacher: Row, label: int, *, temperature: float, ce_weight: float, kd_weight: float
) -> float:
    """A term of weight zero is absent, whatever its value."""
    hard = ce_weight * cross_entropy(student, label) if ce_weight else 0.0
    soft = kd_weight * temperature**2 * forward_kl(student, teacher, temperature) if kd_weight else 0.0
    return hard + soft


def row_gradient(
    student: Row, teacher: Row, label: int, *, temperature: float, ce_weight: float, kd_weight: float
) -> list[float]:
    """tau and not tau^2: one factor of the loss's tau^2 is spent on the chain rule."""
    q, q_soft, p_soft = softmax(student), softmax(student, temperature), softmax(teacher, temperature)
    return [
        ce_weight * (q[v] - (v == label)) + kd_weight * temperature * (q_soft[v] - p_soft[v])
        for v in range(len(student))
    ]


def log_softmax_error(row: Row, temperature: float, unit: float) -> float:
    """What one log-softmax may be wrong by, in nats, each rounding counted and the whole doubled.

    Subtracting the maximum and dividing round the scaled logit z twice: 2u|z|; exp carries that on, is good to 2 ulp
    and is summed V times: (V + 2)u; log and the last subtraction round to (|z| + log V + 2)u. Doubled, because the two
    sides of a comparison both round, and for exp and log of up to 2 ulp on a device.
    """
    largest = max(row)
    z = max((largest - x) / temperature for x in row if x > -math.inf)
    return 2 * unit * (5 * z + 3 * len(row) + 8)


def allowed_row_loss(
    student: Row, teacher: Row, label: int, *, temperature: float, ce_weight: float, kd_weight: float, unit: float
) -> float:
    """How far the loss of one row may be from the oracle's when it is computed with this unit roundoff.

    KL = sum p (log p - log q): errors of the two logarithms enter weighted with p, which sums to 1; an error of log p
    is also one of p, weighted with |log p - log q|. Products and the sum add (V + 4)u of that.
    """
    hard = log_softmax_error(student, 1.0, unit)
    on_p, on_q = log_softmax_error(teacher, temperature, unit), log_softmax_error(student, temperature, unit)
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    spread = math.fsum(
        math.exp(lp) * abs(lp - lq) for lp, lq in zip(log_p, log_q, strict=True) if min(lp, lq) > -math.inf
    )
    soft = on_p + on_q + (on_p + 2 * unit * (len(student) + 4)) * spread
    return ce_weight * hard + kd_weight * temperature**2 * soft


def allowed_row_gradient(
    student: Row, teacher: Row, label: int, *, temperature: float, ce_weight: float, kd_weight: float, unit: float
) -> float:
    """The same for one element of the gradient: a softmax is at most 1, its error at most that of its logarithm."""
    del label
    hard = log_softmax_error(student, 1.0, unit) + 4 * unit
    soft = log_softmax_error(student, temperature, unit) + log_softmax_error(teacher, temperature, unit) + 4 * unit
    return ce_weight * hard + kd_weight * temperature * soft


def assert_close(what: str, seen: float, expected: float, allowed: float, formula: str) -> None:
    """Equal infinities are close, NaN is close to nothing."""
    difference = 0.0 if seen == expected else abs(seen - expected)
    assert difference <= allowed, (
        f"{what} is {seen:.9g}, the oracle says {expected:.9g} ({formula}); apart by {difference:.3g}, allowed "
        f"{allowed:.3g}"
    )


def assert_all_close(what: str, seen: Iterable[float], expected: Iterable[float], allowed: float, formula: str) -> None:
    for v, (value, target) in enumerate(zip(seen, expected, strict=True)):
        assert_close(f"{what}[{v}]", value, target, allowed, formula)


def assert_refused(what: str, call: object, *words: str) -> None:
    """The call raises a ValueError, of whatever subclass, whose message mentions every word."""
    complaint = refusal_complaint(what, call, *words)
    assert complaint is None, complaint


def refusal_complaint(what: str, call: object, *words: str, kind: type[Exception] = ValueError) -> str | None:
    assert callable(call)
    try:
        answer = call()
    except kind as refusal:
        missing = [word for word in words if word.lower() not in str(refusal).lower()]
        return f"{what}: the refusal doesn't mention {missing}: {refusal}" if missing else None
    except Exception as other:  # whatever else it is, it is what the user would have seen instead of a refusal
        return f"{what}: expected a {kind.__name__} that mentions {list(words)}, got {type(other).__name__}: {other}"
    return f"{what}: accepted, with the answer {answer!r}; expected a {kind.__name__} that mentions {list(words)}"
