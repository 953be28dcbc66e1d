"""Attacks on the loss of a teacher of which the most probable tokens are known. The subject is `distillation.top_k`.

Shape letters: B batch, T position, V vocabulary, K kept tokens.
"""

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.strategies import HALVES, TEMPERATURES, tensors
from reference_trainer.distillation.losses import Weights, kd_logit_gradient, kd_loss
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher
from reference_trainer.distillation.step import forward_backward
from reference_trainer.training.evaluation import evaluate

DIVERGENCES = sorted(divergence_oracles.DIVERGENCES)
EXACT = 1e-9
"""Largest relative difference in float64, whose rounding the largest temperature and its square multiply by 400."""


@st.composite
def models(draw: st.DrawFn) -> tuple[Tensor, Tensor, int, float]:
    """Draw logits [1, 2, V] of a student and a teacher, the number of kept tokens, and a temperature."""
    V = draw(st.integers(2, 6))
    student, teacher = (draw(tensors((1, 2, V), HALVES, torch.float64)) for _ in range(2))
    return student, teacher + draw(st.sampled_from([0.0, 100.0])), draw(st.integers(1, V)), draw(TEMPERATURES)


def outcomes(logits_BTV: Tensor, tokens: list[list[int]], temperature: float) -> list[list[Tensor]]:
    """Return log-probabilities of the kept tokens of each row and, unless all are kept, of the others together."""
    log_NV, found = torch.log_softmax(logits_BTV.flatten(0, 1) / temperature, -1), []
    for row, kept in zip(log_NV, tokens, strict=True):
        others = [each for number, each in enumerate(row) if number not in kept]
        tail = [torch.logsumexp(torch.stack(others), 0)] if others else []
        found.append([*(row[number] for number in kept), *tail])
    return found


def largest(teacher_BTV: Tensor, k: int) -> list[list[int]]:
    """Return the k tokens of the largest logits of each row, the first of equal ones."""
    return [sorted(range(len(row)), key=lambda v: -row[v])[:k] for row in teacher_BTV.flatten(0, 1).tolist()]


def expected(name: str, student: Tensor, teacher: Tensor, k: int, temperature: float) -> Tensor:
    """Return temperature^2 times the divergence between distributions of K + 1 outcomes, by its definition."""
    total, tokens = torch.zeros((), dtype=torch.float64), largest(teacher, k)
    for q, p in zip(outcomes(student, tokens, temperature), outcomes(teacher, tokens, temperature), strict=True):
        divergence = divergence_oracles.DIVERGENCES[name].textbook(torch.stack(p), torch.stack(q), 0.5)
        total = total + temperature**2 * divergence
    return total


def found(subject: Any, name: str, student: Tensor, teacher: Tensor, k: int, tau: float, device: str) -> Any:
    """Return the loss and the gradient that the subject's completed teacher gives."""
    student, teacher = student.to(device), teacher.to(device)
    complete = subject.completed(subject.keep_top_k(teacher, k, tau), student, tau)
    labels = torch.zeros(student.shape[:2], dtype=torch.int64, device=device)
    settings: Any = {"temperature": tau, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": name}
    given = (student, complete, labels)
    return float(kd_loss(*given, **settings).sum), kd_logit_gradient(*given, **settings).cpu()


@given(drawn=models(), name=st.sampled_from(DIVERGENCES))
def falsify_loss_is_that_of_the_outcomes(
    subject: Any, device: str, drawn: tuple[Tensor, Tensor, int, float], name: str
) -> None:
    student, teacher, k, tau = drawn
    loss, gradient = found(subject, name, student, teacher, k, tau, device)
    leaf = student.clone().requires_grad_()
    nats = expected(name, leaf, teacher, k, tau)
    (derivative,) = torch.autograd.grad(nats, leaf)
    of = f"{name} with {k} of {student.shape[-1]} tokens at temperature {tau}"
    bound = EXACT * max(1.0, abs(float(nats.detach())))
    assert abs(loss - float(nats.detach())) <= bound, f"{of} is {loss} nats; expected {float(nats.detach())}"
    apart = float((gradient - derivative).abs().max())
    assert apart <= EXACT * tau, f"{of}: the gradient is {gradient.tolist()}; expected {derivative.tolist()}"


@given(drawn=models())
def falsify_tail_that_the_student_bans(subject: Any, device: str, drawn: tuple[Tensor, Tensor, int, float]) -> None:
    student, teacher, k, tau = drawn
    k = min(k, student.shape[-1] - 1)
    banned = student.clone().flatten(0, 1)
    for number, tokens in enumerate(largest(teacher, k)):
        banned[number, [each for each in range(student.shape[-1]) if each not in tokens]] = -math.inf
    loss, gradient = found(subject, "forward_kl", banned[None], teacher, k, tau, device)
    assert loss == math.inf, f"a student that bans the tail has a loss of {loss} nats, not +inf"
    assert bool(gradient.isfinite().all()), f"the gradient is {gradient.tolist()}"


class TopKTable:
    """A teacher that knows the most probable tokens of a table [3, V]."""

    def __init__(self, subject: Any, table: Tensor, k: int, tau: float) -> None:
        self.vocab_size, self.known = table.shape[1], (subject, table, k, tau)

    def top_k(self, batch: Any) -> Any:
        subject, table, k, tau = self.known
        return subject.keep_top_k(table[batch.tokens], k, tau)


class OneBatch:
    """Rows of which all are one batch."""

    device, batches = torch.device("cpu"), 1

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch.tokens)

    def batch(self, order: Tensor, position: int) -> Batch:
        return self._batch


@given(table=tensors((3, 4), HALVES, torch.float64), k=st.integers(1, 4), ce_weight=st.sampled_from([0.0, 1.0]))
def falsify_unknown_metrics_are_absent(subject: Any, table: Tensor, k: int, ce_weight: float) -> None:
    tokens = torch.tensor([[0, 1, 2]])
    batch, weights = Batch(tokens=tokens, labels=tokens), Weights(temperature=2.0, ce_weight=ce_weight, kd_weight=1.0)
    teacher: Any = TopKTable(subject, table, k, 2.0)
    labels = torch.tensor([[1, 2, -100]])
    student = FixtureStudent(torch.zeros(3, 4, dtype=torch.float64), learning_rate=0.1)
    passed = forward_backward(teacher, student, batch, labels, weights, scale=1.0, metrics=True)
    assert set(passed.sums) == {"loss", "hard_loss", "soft_loss"}, f"a step measures {sorted(passed.sums)}"
    evaluated = evaluate(teacher, FixtureTeacher(torch.zeros_like(table)), OneBatch(batch), weights)
    assert set(evaluated) == {"hard_loss", "soft_loss", "token_accuracy"}, f"an evaluation measures {sorted(evaluated)}"
    hard = sum(-oracles.log_softmax([0.0] * 4, 1.0)[y] for y in (1, 2))
    assert abs(float(passed.sums["hard_loss"]) - hard) <= EXACT, f"hard_loss is {float(passed.sums['hard_loss'])}"
