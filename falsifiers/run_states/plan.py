"""Small runs whose student never changes, so that every loss is known in advance, and their float64 oracle."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.cases import IGNORED
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher
from reference_trainer.plan.schedule import Schedule

TEACHER = ((2.0, 0.0, -1.0), (0.0, 40.0, 0.0), (1.0, -2.0, 0.0))
STUDENT = ((-1.0, 0.0, 2.0), (0.0, 40.0, 0.0), (0.0, -2.0, 1.0))
TEMPERATURE = 2.0
CLOSE = 1e-12  # some hundred roundings of 2^-53 of numbers up to 10
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over `count` scored tokens, by name: in nats, but for the tokens of `agreement`."""

    nats: dict[str, float]
    count: int

    def mean(self, name: str) -> float | None:
        return self.nats[name] / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule and its micro-batches [1, T] as (token, label) pairs, which come in turn.

    impossible: the student gives token 0 no mass after token 2, where the teacher does: a loss of infinity.
    """

    epochs: int
    micro_batches: int
    accumulation: int
    limit: int | None
    log_every: int
    batches: tuple[Pairs, ...]
    weights: tuple[float, float] = (0.3, 0.7)
    impossible: bool = False

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.micro_batches / self.accumulation)

    @property
    def steps(self) -> int:
        planned = self.epochs * self.steps_per_epoch
        return planned if self.limit is None else min(planned, self.limit)

    def pairs(self, epoch: int, k: int) -> Pairs:
        return self.batches[((epoch - 1) * self.micro_batches + k - 1) % len(self.batches)]

    def sums(self, step: int) -> Sums:
        """Return the oracle's sums of a step, from 1: over the micro-batches of its window."""
        epoch, within = divmod(step - 1, self.steps_per_epoch)
        first = within * self.accumulation + 1
        window = range(first, min(first + self.accumulation - 1, self.micro_batches) + 1)
        return added([_sums(self.pairs(epoch + 1, k), self.weights, self.impossible) for k in window])


@functools.cache
def _sums(pairs: Pairs, weights: tuple[float, float], impossible: bool) -> Sums:
    rows = [(token, label) for (token, _), (_, label) in itertools.pairwise(pairs) if label != IGNORED]
    student, (hard, soft) = student_rows(impossible), weights
    ce = math.fsum(oracles.cross_entropy(student[token], label) for token, label in rows)
    kl = math.fsum(oracles.forward_kl(student[token], TEACHER[token], TEMPERATURE) for token, _ in rows)
    loss = (hard * ce if hard else 0.0) + (soft * TEMPERATURE**2 * kl if soft else 0.0)
    nats = {"loss": loss, "hard_loss": ce, "soft_loss": TEMPERATURE**2 * kl, "kl_at_T": kl}
    nats["kl_at_1"] = math.fsum(oracles.forward_kl(student[token], TEACHER[token], 1.0) for token, _ in rows)
    nats["teacher_loss"] = math.fsum(oracles.cross_entropy(TEACHER[token], label) for token, label in rows)
    nats["teacher_entropy"] = math.fsum(_entropy(TEACHER[token]) for token, _ in rows)
    nats["agreement"] = sum(_first_largest(student[token]) == _first_largest(TEACHER[token]) for token, _ in rows)
    return Sums(nats, len(rows))


def _entropy(row: Sequence[float]) -> float:
    return -math.fsum(math.exp(log_p) * log_p for log_p in oracles.log_softmax(row))


def _first_largest(row: Sequence[float]) -> int:
    return list(row).index(max(row))


def student_rows(impossible: bool) -> list[list[float]]:
    """Return the student's table."""
    rows = [list(row) for row in STUDENT]
    rows[2][0] = -math.inf if impossible else rows[2][0]
    return rows


def added(parts: Sequence[Sums]) -> Sums:
    """Return the sums over several parts."""
    names = parts[0].nats
    return Sums({n: math.fsum(part.nats[n] for part in parts) for n in names}, sum(part.count for part in parts))


@st.composite
def plans(draw: st.DrawFn, *, impossible: bool = False) -> Plan:
    """Draw runs of up to 18 steps with windows of up to 3 micro-batches; some have no scored token."""
    pairs = st.tuples(st.integers(0, 2), st.sampled_from([IGNORED, 0, 1, 2]))
    batch = st.lists(pairs, min_size=2, max_size=4).map(tuple)
    unscored = st.just(((0, IGNORED), (1, IGNORED)))
    return Plan(
        epochs=draw(st.integers(1, 3)),
        micro_batches=draw(st.integers(1, 6)),
        accumulation=draw(st.integers(1, 3)),
        limit=draw(st.none() | st.integers(1, 9)),
        log_every=draw(st.sampled_from([0, 1, 2, 3, 1000])),
        batches=tuple(draw(st.lists(batch | unscored, min_size=1, max_size=7))),
        weights=draw(st.sampled_from([(0.3, 0.7), (1.0, 0.0), (0.0, 1.0)])),
        impossible=impossible and draw(st.booleans()),
    )


def trained(
    subject: Any,
    plan: Plan,
    device: str,
    callbacks: Sequence[Any],
    *,
    batches_on: str | None = None,
    save_every: int = 0,
    **others: Any,
) -> Any:
    """Train as planned, with a learning rate of 0 and the `others` of `loop.train`, and return the result."""
    hard, soft = plan.weights

    def batch_at(epoch: int, k: int) -> Batch:
        tokens, labels = torch.tensor(plan.pairs(epoch, k), device=batches_on or device).T
        return Batch(tokens=tokens[None], labels=labels[None])

    return subject.train(
        FixtureTeacher(torch.tensor(TEACHER, dtype=torch.float64, device=device)),
        FixtureStudent(torch.tensor(student_rows(plan.impossible), dtype=torch.float64, device=device), 0.0),
        batch_at,
        None,
        schedule=Schedule(
            epochs=plan.epochs,
            steps_per_epoch=plan.steps_per_epoch,
            limit=plan.limit,
            accumulation=plan.accumulation,
            micro_batches=plan.micro_batches,
            log_every=plan.log_every,
            save_every=save_every,
        ),
        objective=subject.Objective(temperature=TEMPERATURE, ce_weight=hard, kd_weight=soft),
        callbacks=callbacks,
        **{"learning_rate": lambda step: 0.0, **others},
    )


def same(seen: float | None, expected: float | None) -> bool:
    """Return whether two losses are equal within rounding; None and infinity equal only themselves."""
    if seen is None or expected is None or math.isinf(expected):
        return seen == expected
    return math.isclose(seen, expected, rel_tol=CLOSE, abs_tol=CLOSE)
