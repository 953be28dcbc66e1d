"""The loss in float64, the same with known mistakes, and the factors between conventions.

Shape letters: B batch, L length, V vocabulary.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Logits [B, L, V], the positions that count [B, L], and the temperature."""

    student: Tensor
    teacher: Tensor
    keep: Tensor
    temperature: float = 1.0

    def only(self, rows: slice) -> "Case":
        return replace(self, student=self.student[rows], teacher=self.teacher[rows], keep=self.keep[rows])


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The convention of a loss, as its attributes document it."""

    # Forward or reverse.
    divergence: str = "forward"
    # Mean, batchmean or sum.
    reduction: str = "mean"
    # T^2 or 1.
    factor: str = "T^2"

    def weight(self, case: Case) -> float:
        """Return the divisor of the sum over positions."""
        counts = {"mean": int(case.keep.sum()), "batchmean": len(case.keep), "sum": 1}
        return float(counts[self.reduction])

    def loss(self, case: Case) -> Tensor:
        return self.reduced(case, rows(case, self.divergence))

    def reduced(self, case: Case, rows: Tensor) -> Tensor:
        scale = case.temperature**2 if self.factor == "T^2" else 1.0
        return rows[case.keep].sum() * scale / self.weight(case)


def rows(case: Case, divergence: str) -> Tensor:
    """Return the divergence of each position in nats [B, L], in float64."""
    log_p, log_q = ((logits.double() / case.temperature).log_softmax(-1) for logits in (case.teacher, case.student))
    return kl(log_p, log_q) if divergence == "forward" else kl(log_q, log_p)


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _divergences(case: Case) -> dict[str, Tensor]:
    """Return rows of mistakes in the divergence."""
    s, t = case.student.double(), case.teacher.double()
    log_p, log_q = (t / case.temperature).log_softmax(-1), (s / case.temperature).log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    return {
        "KL(student || teacher)": kl(log_q, log_p),
        "KL(teacher || student)": kl(log_p, log_q),
        "the cross-entropy, without the teacher's entropy": -(p * log_q).sum(-1),
        "a softmax of the softmax in both": kl(p.log_softmax(-1), q.log_softmax(-1)),
        "a softmax of the softmax in the student": kl(log_p, q.log_softmax(-1)),
        "a softmax of the softmax in the teacher": kl(p.log_softmax(-1), log_q),
        "the student's softmax without a logarithm": (p * (log_p - q)).sum(-1),
        "probabilities that are read as logarithms": (p.exp() * (p - log_q)).sum(-1),
        "the temperature in the student only": kl(t.log_softmax(-1), log_q),
        "the temperature in the teacher only": kl(log_p, s.log_softmax(-1)),
        "the softmax over positions": kl(*((x / case.temperature).log_softmax(1) for x in (t, s))),
    }


def _mistakes(case: Case, convention: Convention) -> dict[str, Tensor]:
    right = rows(case, convention.divergence)
    mistakes = {name: convention.reduced(case, divergence) for name, divergence in _divergences(case).items()}
    for name, keep in (
        ("of every position", torch.ones_like(case.keep)),
        ("masked one place late", case.keep.roll(1, 1)),
    ):
        mistakes[name] = convention.reduced(replace(case, keep=keep), right)
    means = [convention.loss(case.only(slice(k, k + 1))) for k in range(len(case.keep)) if case.keep[k].any()]
    return {**mistakes, "the mean of the means of sequences": torch.stack(means).mean()}


def _factors(case: Case) -> dict[str, float]:
    (b, length, v), kept, t = case.student.shape, int(case.keep.sum()), case.temperature
    sizes = {"T^2": t**2, "T": t, "T^4": t**4, "V": v, "N": kept, "N*V": kept * v, "B": b, "N/B": kept / b}
    sizes |= {"B*L/N": b * length / kept, "B*L*V/N": b * length * v / kept, "ln 2": math.log(2)}
    return sizes | {f"1/({name})" if len(name) > 3 else f"1/{name}": 1 / size for name, size in sizes.items()}


def explain(actual: float, case: Case, convention: Convention) -> str:
    """Return "; it is ..." with the known mistake, or the factor, that gives the loss; "" if none does."""
    right = float(convention.loss(case))
    if not near(actual, right):
        causes = [name for name, wrong in _mistakes(case, convention).items() if near(actual, float(wrong))]
        factors = [name for name, factor in _factors(case).items() if near(actual, right * factor)]
        if causes or factors:
            return f"; it is {' or '.join(causes[:2] or [f'{name} times that' for name in factors[:2]])}"
    return ""


def near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)
