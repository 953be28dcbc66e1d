"""Float64 oracles of the distillation loss, its gradient and its divergences, in plain Python, and their tolerances.

    L = sum over scored rows of  ce_weight * CE(s, y)  +  kd_weight * tau^2 * D(softmax(t/tau), softmax(s/tau))

D is KL(teacher || student), or another divergence. A row is a sequence of V logits; values are in nats. The arithmetic
uses no tensor operation, apart from the `textbook` form of a divergence.
p is the distribution of the teacher, q of the student; beta is the share of p in their mixture.
Sources: Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2; Agarwal et al. 2024, arXiv:2306.13649, equation 1.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import torch
from torch import Tensor

Row = Sequence[float]

UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""The unit roundoff of each dtype: the largest relative rounding error of one operation."""


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


def kl(log_a: Sequence[float], log_b: Sequence[float]) -> float:
    """Return KL(a || b): no term where a is 0, +inf where only b is."""
    pairs = zip(log_a, log_b, strict=True)
    return math.fsum(math.inf if y == -math.inf else math.exp(x) * (x - y) for x, y in pairs if x > -math.inf)


def forward_kl(student: Row, teacher: Row, temperature: float) -> float:
    """Return KL(teacher || student) in nats at this temperature, without the factor tau^2."""
    return kl(log_softmax(teacher, temperature), log_softmax(student, temperature))


def log_over_mixture(log_p: Sequence[float], log_q: Sequence[float], share: float) -> list[tuple[float, float]]:
    """Return log p - log m and log q - log m of each token, with m = share p + (1 - share) q; 0 where p and q are 0."""

    def log_ratios(x: Decimal, y: Decimal, share: Decimal) -> tuple[float, float]:
        mixture = share * x.exp() + (1 - share) * y.exp()
        return (float(x - mixture.ln()), float(y - mixture.ln())) if mixture else (0.0, 0.0)

    # 60 digits, because log p - log m is about as small as the share of q in the mixture, and would cancel in float64.
    with localcontext(prec=60):
        return [log_ratios(Decimal(x), Decimal(y), Decimal(share)) for x, y in zip(log_p, log_q, strict=True)]


def _jensen_shannon(log_p: Sequence[float], log_q: Sequence[float], beta: float) -> float:
    """Return beta KL(p || m) + (1 - beta) KL(q || m) with m = beta p + (1 - beta) q.

    By definition of the trainer, beta = 0 is the forward KL divergence KL(p || q), and beta = 1 the reverse one.
    """
    if beta in (0, 1):
        return kl(log_q, log_p) if beta else kl(log_p, log_q)

    def mean(log_a: Sequence[float], values: Sequence[float]) -> float:
        return math.fsum(math.exp(x) * value for x, value in zip(log_a, values, strict=True) if x > -math.inf)

    over_p, over_q = zip(*log_over_mixture(log_p, log_q, beta), strict=True)
    return beta * mean(log_p, over_p) + (1 - beta) * mean(log_q, over_q)


def _centred(log_q: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return q (v - sum q v), the derivative of sum q v with respect to the logits of q for fixed v."""
    q = [math.exp(y) for y in log_q]
    mean = math.fsum(a * b for a, b in zip(q, values, strict=True))
    return [a * (b - mean) for a, b in zip(q, values, strict=True)]


def _forward_derivative(student: Row, teacher: Row, temperature: float, beta: float) -> list[float]:
    pairs = zip(softmax(student, temperature), softmax(teacher, temperature), strict=True)
    return [q - p for q, p in pairs]


def _reverse_derivative(student: Row, teacher: Row, temperature: float, beta: float) -> list[float]:
    """Return the derivative of KL(student || teacher): q (d - sum q d) with d = s - t.

    Each row is shifted by its largest logit. At a token where a logit is -inf, d counts as 0, as if both were equal.
    """
    s, t = ([(x - max(row)) / temperature for x in row] for row in (student, teacher))
    gaps = [a - b if min(a, b) > -math.inf else 0.0 for a, b in zip(s, t, strict=True)]
    return _centred(log_softmax(student, temperature), gaps)


def _jensen_shannon_derivative(student: Row, teacher: Row, temperature: float, beta: float) -> list[float]:
    if beta in (0, 1):
        return (_reverse_derivative if beta else _forward_derivative)(student, teacher, temperature, beta)
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    ratios = [max(over_q, -sys.float_info.max) for _, over_q in log_over_mixture(log_p, log_q, beta)]
    return [(1 - beta) * element for element in _centred(log_q, ratios)]


def _torch_kl(log_a: Tensor, log_b: Tensor, beta: float = 0.0) -> Tensor:
    """Return KL(a || b) over the last dimension; no term where a is 0. `beta` is not used."""
    is_zero = log_a.isneginf()
    log_a = log_a.masked_fill(is_zero, 0.0)  # masked before the product, because 0 * inf has the derivative NaN
    return (log_a.exp() * (log_a - log_b)).masked_fill(is_zero, 0.0).sum(-1)


def _torch_jensen_shannon(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
    if beta in (0, 1):
        return _torch_kl(log_q, log_p) if beta else _torch_kl(log_p, log_q)
    log_m = torch.logaddexp(log_p + math.log(beta), log_q + math.log1p(-beta))
    return beta * _torch_kl(log_p, log_m) + (1 - beta) * _torch_kl(log_q, log_m)


@dataclass(frozen=True, slots=True)
class Oracle:
    """A divergence from its definition.

    Attributes:
        value: A function of log p, log q and beta that returns the divergence in nats.
        derivative: A function of the rows of student and teacher, the temperature and beta that returns the derivative
            with respect to each student logit divided by the temperature.
        textbook: A function of the tensors log p and log q, and beta, with differentiable operations.
        betas: The values of beta to test.
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
    """Return the divergence of a row in nats, without the factor tau^2."""
    return DIVERGENCES[name].value(log_softmax(teacher, temperature), log_softmax(student, temperature), beta)


@dataclass(frozen=True, slots=True)
class Loss:
    """The equation of the loss: its weights, its temperature and its divergence.

    Allowed errors are for arithmetic with the unit roundoff `unit`.
    """

    temperature: float
    ce_weight: float
    kd_weight: float
    divergence: str = "forward_kl"
    beta: float = 0.5

    def nats(self, student: Row, teacher: Row, label: int) -> float:
        """Return the loss of one row in nats; a term of weight 0 is left out, even if it is infinite."""
        loss = self.ce_weight * cross_entropy(student, label) if self.ce_weight else 0.0
        if self.kd_weight:
            divergence = row_divergence(student, teacher, self.temperature, self.divergence, self.beta)
            loss += self.kd_weight * self.temperature**2 * divergence
        return loss

    def gradient(self, student: Row, teacher: Row, label: int) -> list[float]:
        """Return the derivative of `nats` with respect to each student logit.

        The divergence has the factor tau, not tau^2, since the softmax divides the logits by tau.
        """
        q, factor = softmax(student), self.kd_weight * self.temperature
        soft = DIVERGENCES[self.divergence].derivative(student, teacher, self.temperature, self.beta)
        return [self.ce_weight * (q[v] - (v == label)) + factor * soft[v] for v in range(len(student))]

    def allowed_nats(self, student: Row, teacher: Row, unit: float) -> float:
        """Return the largest rounding error of the loss of one row in nats."""
        soft = allowed_divergence(student, teacher, self.temperature, unit, self.divergence)
        return self.ce_weight * log_softmax_error(student, 1.0, unit) + self.kd_weight * self.temperature**2 * soft

    def allowed_gradient(self, student: Row, teacher: Row, unit: float) -> float:
        """Return the largest rounding error of one element of the gradient.

        A softmax is at most 1, so its error is at most the error of its logarithm. The mean in the derivative of
        another divergence has the same error as the divergence.
        """
        soft = _both_errors(student, teacher, self.temperature, unit)
        if self.divergence != "forward_kl":
            soft = 2 * allowed_divergence(student, teacher, self.temperature, unit, self.divergence)
        hard = log_softmax_error(student, 1.0, unit) + 4 * unit
        return self.ce_weight * hard + self.kd_weight * self.temperature * (soft + 4 * unit)


def log_softmax_error(row: Row, temperature: float, unit: float) -> float:
    """Return the largest rounding error of one log-softmax in nats, for unit roundoff u = `unit`.

    Subtracting the maximum and dividing round the scaled logit z twice: 2u|z|. exp propagates this, adds 2 ulp and is
    summed V times: (V + 2)u. log and the last subtraction add (|z| + log V + 2)u. The total is doubled, because both
    sides of a comparison round, and because exp and log may be off by 2 ulp on a device.
    """
    largest = max(row)
    z = max((largest - x) / temperature for x in row if x > -math.inf)
    return 2 * unit * (5 * z + 3 * len(row) + 8)


def _both_errors(student: Row, teacher: Row, temperature: float, unit: float) -> float:
    """Return the sum of the rounding errors of both log-softmaxes."""
    return sum(log_softmax_error(row, temperature, unit) for row in (student, teacher))


def allowed_divergence(
    student: Row, teacher: Row, temperature: float, unit: float, name: str = "jensen_shannon"
) -> float:
    """Return the largest rounding error of a divergence of one row in nats, for arithmetic with this unit roundoff.

    KL = sum p (log p - log q): errors of the two logarithms are weighted by probabilities, which sum to 1; an error of
    a logarithm is also an error of its probability, weighted by |log p - log q|. Products and the sum add (V + 4)u with
    the same weights. The probabilities are p for forward KL, and p and q for the other divergences.
    """
    log_p, log_q = log_softmax(teacher, temperature), log_softmax(student, temperature)
    pairs = [(x, y) for x, y in zip(log_p, log_q, strict=True) if min(x, y) > -math.inf]
    logs = _both_errors(student, teacher, temperature, unit)
    if name == "forward_kl":
        spread = math.fsum(math.exp(x) * abs(x - y) for x, y in pairs)
        return logs + (log_softmax_error(teacher, temperature, unit) + 2 * unit * (len(student) + 4)) * spread
    spread = math.fsum((math.exp(x) + math.exp(y)) * abs(x - y) for x, y in pairs)
    return logs + (logs + 2 * unit * (len(student) + 4)) * spread + unit


def assert_close(name: str, actual: float, expected: float, allowed: float, formula: str) -> None:
    """Assert |actual - expected| <= allowed; equal infinities are close, NaN never is.

    formula: what is expected, for the message.
    """
    difference = 0.0 if actual == expected else abs(actual - expected)
    case = f"{name} is {actual:.9g}; expected {expected:.9g} ({formula})"
    assert difference <= allowed, f"{case}; difference {difference:.3g}, allowed {allowed:.3g}"


def assert_refused(case: str, call: Callable[[], object], *words: str, kind: type[Exception] = ValueError) -> None:
    """Assert that a call raises an exception of `kind` whose message contains every word, in any case of letters."""
    expected = f"{case}: expected a {kind.__name__} that contains {list(words)}"
    try:
        result = call()
    except kind as refusal:
        missing = [word for word in words if word.lower() not in str(refusal).lower()]
        assert not missing, f"{expected}; the message lacks {missing}: {refusal}"
    except Exception as other:  # any other exception is a wrong refusal
        raise AssertionError(f"{expected}, got {type(other).__name__}: {other}") from other
    else:
        raise AssertionError(f"{expected}; the call returned {result!r}")
