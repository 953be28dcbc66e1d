"""Cases for attacks on a distillation loss and step: the arguments of one call, and what the oracles say of it.

The subject under attack is always an argument: an object with `kd_loss` and `kd_logit_gradient`. Nothing here imports
a trainer.

Shape letters: B batch, T position, V vocabulary, K token ids.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from falsifiers.support import oracles

__all__ = ["IGNORED", "Case", "KdCase", "StepCase", "unit_of"]

IGNORED = -100


def unit_of(subject: Any) -> float:
    """Return the unit roundoff of the subject's arithmetic on float64 logits: float64, or its `ARITHMETIC` dtype."""
    return oracles.UNIT_ROUNDOFF[getattr(subject, "ARITHMETIC", torch.float64)]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A case of which fields can be changed."""

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)

    @property
    def settings(self) -> dict[str, float]:
        """Return temperature and weights as keyword arguments."""
        return {name: getattr(self, name) for name in ("temperature", "ce_weight", "kd_weight")}


@dataclass(frozen=True, slots=True, eq=False)
class KdCase(Case):
    """The arguments of one call of a distillation loss.

    student, teacher: floating logits [B, T, V]; labels: integers [B, T], labels[b, i] is the target of student[b, i].
    """

    student: Tensor
    teacher: Tensor
    labels: Tensor
    temperature: float = 1.0
    ce_weight: float = 0.0
    kd_weight: float = 1.0
    ignore_index: int = IGNORED

    @property
    def scored(self) -> Tensor:
        """Return which positions are scored, bool [B, T]."""
        return self.labels != self.ignore_index

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the call; `ignore_index` only if it is not the default."""
        ignored = {} if self.ignore_index == IGNORED else {"ignore_index": self.ignore_index}
        return {**self.settings, **ignored}

    def tensors(self, device: str | None) -> list[Tensor]:
        """Return student, teacher and labels, moved to the device if one is given."""
        return [x if device is None else x.to(device) for x in (self.student, self.teacher, self.labels)]

    def loss(self, subject: Any, device: str | None = None) -> Any:
        """Return the result of the subject's `kd_loss`, with `.sum` in nats and `.count`."""
        return subject.kd_loss(*self.tensors(device), **self.arguments())

    def nats(self, subject: Any, device: str | None = None) -> float:
        """Return the sum of the subject's `kd_loss` in nats."""
        return float(self.loss(subject, device).sum)

    def gradient(self, subject: Any, device: str | None = None) -> Tensor:
        """Return the subject's closed-form gradient [B, T, V] on CPU; assert its shape."""
        gradient = self.gradient_on_device(subject, device).cpu()
        assert gradient.shape == self.student.shape, f"the gradient has shape {list(gradient.shape)}"
        return gradient

    def gradient_on_device(self, subject: Any, device: str | None = None) -> Tensor:
        """Return the subject's closed-form gradient where it was computed."""
        gradient: Tensor = subject.kd_logit_gradient(*self.tensors(device), **self.arguments())
        return gradient

    def autograd(self, subject: Any, device: str | None = None) -> Tensor:
        """Return the derivative [B, T, V] of the subject's own loss on CPU, by automatic differentiation."""
        student, teacher, labels = (x.detach() for x in self.tensors(device))
        student = student.clone().requires_grad_()
        loss = subject.kd_loss(student, teacher, labels, **self.arguments())
        try:
            loss.sum.backward()
        except RuntimeError as e:
            raise AssertionError(f"the sum {loss.sum!r} is not differentiable: {e}") from e
        assert student.grad is not None, "the sum does not depend on the student's logits"
        return student.grad.cpu()

    def rows(self) -> Iterator[tuple[tuple[int, int], list[float], list[float], int]]:
        """Yield each scored position (b, t) with its student row, teacher row and label, as Python numbers."""
        for b, t in self.scored.nonzero().tolist():
            yield (b, t), self.student[b, t].tolist(), self.teacher[b, t].tolist(), int(self.labels[b, t])

    def oracle_nats(self) -> float:
        """Return the oracle's loss in nats, summed over scored positions."""
        return math.fsum(oracles.row_loss(s, t, y, **self.settings) for _, s, t, y in self.rows())

    def oracle_gradient(self) -> Tensor:
        """Return the oracle's gradient of the sum, float64 [B, T, V], 0 at unscored positions."""
        gradient = torch.zeros(self.student.shape, dtype=torch.float64)
        for (b, t), s, p, y in self.rows():
            gradient[b, t] = torch.tensor(oracles.row_gradient(s, p, y, **self.settings), dtype=torch.float64)
        return gradient

    def allowed_nats(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        """Return the largest rounding error of the sum in nats, for arithmetic with this unit roundoff."""
        errors = [oracles.allowed_row_loss(s, t, y, **self.settings, unit=unit) for _, s, t, y in self.rows()]
        return math.fsum(errors) + len(errors) * unit  # plus one rounding of the sum for each row of about one nat

    def allowed_gradient(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        """Return the largest rounding error of an element of the gradient, for arithmetic with this unit roundoff."""
        errors = (oracles.allowed_row_gradient(s, t, y, **self.settings, unit=unit) for _, s, t, y in self.rows())
        return max(errors, default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class StepCase(Case):
    """A batch and the arguments of one distillation step between tables of logits.

    tokens, labels: integers [B, T], aligned; student, teacher: floating [K, V], row k holds the logits after token k.
    """

    tokens: Tensor
    labels: Tensor
    student: Tensor
    teacher: Tensor
    temperature: float = 1.0
    ce_weight: float = 0.0
    kd_weight: float = 1.0

    def shifted(self) -> KdCase:
        """Return the case of the step's loss: logits at i with the label at i + 1."""
        student, teacher = self.student[self.tokens[:, :-1]], self.teacher[self.tokens[:, :-1]]
        return KdCase(student, teacher, self.labels[:, 1:], self.temperature, self.ce_weight, self.kd_weight)

    def oracle_gradient(self) -> Tensor:
        """Return the oracle's gradient of the mean over scored tokens, float64 [B, T, V], 0 in the last position."""
        gradient = torch.zeros(*self.tokens.shape, self.student.shape[1], dtype=torch.float64)
        shifted = self.shifted()
        gradient[:, :-1] = shifted.oracle_gradient() / max(int(shifted.scored.sum()), 1)
        return gradient

    def oracle_table(self, learning_rate: float) -> Tensor:
        """Return the student's table [K, V] after one descent step in float64, summed element by element."""
        table, gradient = self.student.double().clone(), self.oracle_gradient()
        for b, t in torch.ones_like(self.tokens).nonzero().tolist():
            table[self.tokens[b, t]] -= learning_rate * gradient[b, t]
        return table
