"""A run as a plain loop over the same batches with its own models, beside the real run.

The subject is that of `real_run`; `kd_step`, which computes the loss of a step, is the trainer's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.callbacks.lifecycle import Script
from falsifiers.callbacks.real_run import SETTINGS, parts, recording_callbacks, run, tables
from falsifiers.support.strategies import IGNORED
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.step import kd_step

# Nine steps on numbers up to 10: some hundred roundings of 2^-53 of that, in whatever order a device adds.
SAME = 1e-12


EVENTS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")
"""Events whose contexts the plain loop has; `falsify_within_steps` has the others."""


@dataclass(frozen=True, slots=True)
class Text:
    """A schedule, and its batches [1, T] as (token, label) pairs with the seconds that each takes; they come in turn.

    impossible: the student gives token 0 no mass after token 2, where the teacher does: a loss of infinity.
    """

    epochs: int
    steps_per_epoch: int
    limit: int | None
    batches: tuple[tuple[tuple[int, int], ...], ...]
    seconds: tuple[float, ...]
    impossible: bool = False

    @property
    def script(self) -> Script:
        return Script(self.epochs, self.steps_per_epoch, self.limit, ((),))

    def batch(self, step: int, device: str) -> Batch:
        tokens, labels = torch.tensor(self.batches[step % len(self.batches)], device=device).T
        return Batch(tokens=tokens[None], labels=labels[None])

    def pause(self, step: int) -> float:
        return self.seconds[step % len(self.seconds)]

    def logits(self, device: str) -> tuple[Tensor, Tensor]:
        """Return logits of teacher and student, both certain after token 1: a loss of exactly 0 if 1 comes next."""
        teacher = torch.tensor([[2.0, 0, -1], [0, 40, 0], [1, -2, 0]], dtype=torch.float64, device=device)
        student = teacher.flip(0, 1).clone()
        student[2, 0] = -math.inf if self.impossible else student[2, 0]
        return teacher, student


@st.composite
def texts(draw: st.DrawFn, *, impossible: bool = True) -> Text:
    """Draw batches with different numbers of scored tokens (also none), losses of 0, and seconds that add exactly."""
    pairs = st.tuples(st.integers(0, 2), st.sampled_from([IGNORED, 0, 1, 2]))
    batch, certain = st.lists(pairs, min_size=2, max_size=5).map(tuple), st.just(((1, 1), (1, 1)))
    batches = st.lists(batch | certain, min_size=1, max_size=9).map(tuple)
    seconds = st.lists(st.integers(0, 80).map(lambda eighths: eighths / 8), min_size=1, max_size=5).map(tuple)
    schedule = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.none() | st.integers(1, 9))
    return Text(*schedule, draw(batches), draw(seconds), impossible and draw(st.booleans()))


class Moment(NamedTuple):
    """The context of an event, and the student's table at that time."""

    event: str
    step: int
    epoch: int
    loss: float | None
    learning_rate: float | None
    best_loss: float | None
    elapsed_s: float
    tokens: int
    table: Tensor


class ByHand:
    """The run as a plain loop. `moments`: expected contexts; `asked`: (epoch, position) of each batch."""

    def __init__(self, text: Text, device: str) -> None:
        self.text, self.device = text, device
        self.teacher, self.student = tables(*text.logits(device))
        self.step = self.epoch = self.tokens = 0
        self.rate: float | None = None
        self.elapsed, self.losses = 0.0, list[float | None]()
        self.moments, self.asked = list[Moment](), list[tuple[int, int]]()
        self.add("on_train_begin", None)
        while self.step < text.script.total:
            self.take_epoch()
        self.add("on_train_end", self.losses[-1])

    @property
    def scored(self) -> list[float]:
        return [loss for loss in self.losses if loss is not None]

    @property
    def best(self) -> float | None:
        return min(filter(math.isfinite, self.scored), default=None)

    def add(self, event: str, loss: float | None) -> None:
        now = (self.step, self.epoch, loss, self.rate, self.best, self.elapsed, self.tokens, self.student.logits_table)
        self.moments.append(Moment(event, *now))

    def take_epoch(self) -> None:
        self.epoch += 1
        self.add("on_epoch_begin", self.losses[-1] if self.losses else None)
        nats, before = 0.0, self.tokens
        for position in range(1, self.text.steps_per_epoch + 1):
            if self.step < self.text.script.total:
                nats += self.take_step(position)
                self.add("on_step_end", self.losses[-1])
        count = self.tokens - before
        self.add("on_epoch_end", nats / count if count else None)

    def take_step(self, position: int) -> float:
        self.asked.append((self.epoch, position))
        batch = self.text.batch(self.step, self.device)
        self.elapsed += self.text.pause(self.step)
        result = kd_step(self.teacher, self.student, batch, **SETTINGS)
        self.step += 1
        self.rate, self.tokens = 1 / (self.step + 1), self.tokens + result.count
        self.losses.append(result.loss)
        return float(result.sum)


class RealRun:
    """A real run of the same text: the contexts of its one callback, the batches requested, and the result."""

    def __init__(self, subject: Any, text: Text, device: str) -> None:
        self.moments, self.asked = list[Moment](), list[tuple[int, int]]()
        teacher, student = tables(*text.logits(device))
        now = [1000.0]

        def batch_at(epoch: int, position: int) -> Any:
            now[0] += text.pause(len(self.asked))
            self.asked.append((epoch, position))
            return text.batch(len(self.asked) - 1, device)

        def act(callback: int, event: str, context: Any) -> None:
            assert_schedule_fields(event, context, text)
            if event not in EVENTS:
                return
            values = (getattr(context, name) for name in Moment._fields[1:-1])
            self.moments.append(Moment(event, *values, student.logits_table))

        given = {"teacher": teacher, "student": student, "batch_at": batch_at, "clock": lambda: now[0]}
        given = parts(device) | given | {"learning_rate": lambda step: 1 / (step + 1)}
        self.result = run(subject, text.script, recording_callbacks(1, act), given)


def assert_schedule_fields(event: str, context: Any, text: Text) -> None:
    seen = (context.epochs, context.steps_per_epoch, context.total_steps)
    planned = (text.epochs, text.steps_per_epoch, text.script.total)
    assert seen == planned, f"{event} receives (epochs, steps per epoch, total) {seen}; expected {planned}"


def same(seen: Any, expected: Any) -> bool:
    if isinstance(seen, Tensor):
        return torch.allclose(seen, expected, rtol=SAME, atol=SAME, equal_nan=True)
    if isinstance(seen, float) and isinstance(expected, float):
        return math.isclose(seen, expected, rel_tol=SAME) or (math.isnan(seen) and math.isnan(expected))
    return type(seen) is type(expected) and bool(seen == expected)


def assert_same_fields(seen: list[Moment], expected: list[Moment], names: tuple[str, ...]) -> None:
    """Assert equal values of these fields at every event."""
    events = [(m.event, m.step) for m in seen], [(m.event, m.step) for m in expected]
    assert events[0] == events[1], f"events came as {events[0]}; expected {events[1]}"
    for got, wanted in zip(seen, expected, strict=True):
        for name in names:
            values = getattr(got, name), getattr(wanted, name)
            assert same(*values), f"{got.event} of step {got.step}: {name} is {values[0]}; expected {values[1]}"
