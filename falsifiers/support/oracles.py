"""Float64 oracles of the distillation loss and its gradient, in plain Python from the equation, and their tolerances.

    L = sum over scored rows of  ce_weight * CE(s, y)  +  kd_weight * tau^2 * KL(softmax(t/tau) || softmax(s/tau))

A row is a sequence of V logits; values are in nats. The arithmetic uses no tensor operation.
Source: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2.
"""

import math
from collections.abc import Callable, Sequence

import torch

Row = Sequence[float]

UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""The largest relative rounding error of one operation in each dtype."""


def log_softmax(row: Row, temperature: float = 1.0) -> list[float]:
    """Return the log-probabilities of the row divided by the temperature."""
    largest = max(row)
    scaled = [(z - largest) / temperature for z in row]
    log_total = math.log(math.fsum(math.exp(z) for z in scaled))
    return [z - log_total for z in scaled]


def softmax(row: Row, temperature: float = 1.0) -> list[float]:
    """Return the probabilities of the row divided by the temperature."""
    return [math.exp(z) for z in log_softmax(row, temperature)]


def cross_entropy(student: Row, label: int) -> float:
    """Return -log softmax(student)[label] in nats; +inf for a logit of -inf."""
    return -log_softmax(student)[label]


def forward_kl(student: Row, teacher: Row, temperature: float) -> float:
    """Return KL(teacher || student) in nats at this temperature, without the factor tau^2.

    A teacher logit of -inf gives no term; a student logit of -inf alone gives +inf.
    """
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    return math.fsum(
        math.inf if lq == -math.inf else math.exp(lp) * (lp - lq)
        for lp, lq in zip(log_p, log_q, strict=True)
        if lp > -math.inf
    )


def row_loss(
    student: Row, teacher: Row, label: int, *, temperature: float, ce_weight: float, kd_weight: float
) -> float:
    """Return the loss of one row in nats; a term of weight 0 is absent, even if it is infinite."""
    hard = ce_weight * cross_entropy(student, label) if ce_weight else 0.0
    soft = kd_weight * temperature**2 * forward_kl(student, teacher, temperature) if kd_weight else 0.0
    return hard + soft


def row_gradient(
    student: Row, teacher: Row, label: int, *, temperature: float, ce_weight: float, kd_weight: float
) -> list[float]:
    """Return the derivative of `row_loss` by each student logit; the teacher's term has the factor tau, not tau^2."""
    q, q_soft, p_soft = softmax(student), softmax(student, temperature), softmax(teacher, temperature)
    return [
        ce_weight * (q[v] - (v == label)) + kd_weight * temperature * (q_soft[v] - p_soft[v])
        for v in range(len(student))
    ]


def log_softmax_error(row: Row, temperature: float, unit: float) -> float:
    """Return the largest rounding error of one log-softmax in nats, for unit roundoff u = `unit`.

    Subtracting the maximum and dividing round the scaled logit z twice: 2u|z|. exp propagates this, adds 2 ulp and is
    summed V times: (V + 2)u. log and the last subtraction add (|z| + log V + 2)u. The total is doubled, because both
    sides of a comparison round, and because exp and log may be off by 2 ulp on a device.
    """
    largest = max(row)
    z = max((largest - x) / temperature for x in row if x > -math.inf)
    return 2 * unit * (5 * z + 3 * len(row) + 8)


def allowed_row_loss(
    student: Row, teacher: Row, label: int, *, temperature: float, ce_weight: float, kd_weight: float, unit: float
) -> float:
    """Return the largest rounding error of the loss of one row in nats, for arithmetic with this unit roundoff.

    KL = sum p (log p - log q): errors of the two logarithms are weighted by p, which sums to 1; an error of log p is
    also an error of p, weighted by |log p - log q|. Products and the sum add (V + 4)u of that.
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
    """Return the largest rounding error of one element of the gradient, for arithmetic with this unit roundoff.

    A softmax is at most 1, so its error is at most that of its logarithm.
    """
    del label
    hard = log_softmax_error(student, 1.0, unit) + 4 * unit
    soft = log_softmax_error(student, temperature, unit) + log_softmax_error(teacher, temperature, unit) + 4 * unit
    return ce_weight * hard + kd_weight * temperature * soft


def assert_close(what: str, seen: float, expected: float, allowed: float, formula: str) -> None:
    """Assert |seen - expected| <= allowed; equal infinities are close, NaN never is."""
    difference = 0.0 if seen == expected else abs(seen - expected)
    assert difference <= allowed, (
        f"{what} is {seen:.9g}; expected {expected:.9g} ({formula}); difference {difference:.3g}, allowed {allowed:.3g}"
    )


def assert_refused(what: str, call: Callable[[], object], *words: str, kind: type[Exception] = ValueError) -> None:
    """Assert that the call raises `kind` or a subclass of it whose message contains every word."""
    expected = f"{what}: expected a {kind.__name__} that contains {list(words)}"
    try:
        answer = call()
    except kind as refusal:
        missing = [word for word in words if word.lower() not in str(refusal).lower()]
        assert not missing, f"{what}: the message does not contain {missing}: {refusal}"
    except Exception as other:  # any other exception is a wrong refusal
        raise AssertionError(f"{expected}, got {type(other).__name__}: {other}") from other
    else:
        raise AssertionError(f"{expected}, and {answer!r} was returned")
