"""What a run has to tell its callbacks, simulated from the words of the contract, and runs to compare it with.

The subject has `train`, `Schedule`, `Objective`, `Callback` and `Batch`, as `reference_trainer.loop` does. Actions, and
the tables that stand for models, come from the trainer itself: they aren't under attack.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from hypothesis import strategies as st

HOOKS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")
SETTINGS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}
FAR_TOO_MANY = 2000
ANSWERS = st.sampled_from([None, None, None, "CONTINUE", "SKIP", "STOP"])


@dataclass(frozen=True, slots=True)
class Told:
    """One call of one hook of one callback (from 0), with the epoch and step that its context gave."""

    callback: int
    event: str
    epoch: int
    step: int

    def __str__(self) -> str:
        return f"{self.event} of callback {self.callback} in epoch {self.epoch} after step {self.step}"


@dataclass(frozen=True, slots=True)
class Script:
    """A run, and what its callbacks answer: answers[c][n] to the n-th event (from 0), None beyond the list."""

    epochs: int
    steps_per_epoch: int
    limit: int | None
    answers: tuple[tuple[str | None, ...], ...]

    @property
    def total(self) -> int:
        every = self.epochs * self.steps_per_epoch
        return every if self.limit is None else min(every, self.limit)

    def strongest(self, nth: int) -> str:
        said = [answers[nth] for answers in self.answers if nth < len(answers)]
        return next((name for name in ("STOP", "SKIP") if name in said), "CONTINUE")


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A run as the words have it: what is told, how many steps are taken, whether a callback said STOP."""

    told: list[Told]
    steps: int
    stopped: bool


def lifecycle(script: Script) -> Lifecycle:
    """Begin; for each epoch: begin, steps while nobody skips or stops, end; end. Every callback hears everything."""
    told: list[Told] = []
    said: list[str] = []

    def tell(event: str, epoch: int, step: int) -> str:
        told.extend(Told(callback, event, epoch, step) for callback in range(len(script.answers)))
        said.append("CONTINUE" if event == "on_train_end" else script.strongest(len(said)))
        return said[-1]

    step = epoch = 0
    tell("on_train_begin", 0, 0)
    while "STOP" not in said and epoch < script.epochs and step < script.total:
        epoch, taken = epoch + 1, 0
        answer = tell("on_epoch_begin", epoch, step)
        while answer == "CONTINUE" and taken < script.steps_per_epoch and step < script.total:
            step, taken = step + 1, taken + 1
            answer = tell("on_step_end", epoch, step)
        tell("on_epoch_end", epoch, step)
    tell("on_train_end", epoch, step)
    return Lifecycle(told, step, "STOP" in said)


@st.composite
def scripts(draw: st.DrawFn, answers: st.SearchStrategy[str | None], *, fewest: int = 0, most: int = 3) -> Script:
    """Up to 12 steps; every callback may answer at every event."""
    epochs, steps_per_epoch = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    limit = draw(st.none() | st.integers(1, 14))
    rows = st.lists(answers, max_size=10).map(tuple)
    return Script(epochs, steps_per_epoch, limit, tuple(draw(st.lists(rows, min_size=fewest, max_size=most))))


def scripts_with_one(answer: str) -> st.SearchStrategy[Script]:
    """One callback, or every one, gives this answer to one event; nobody says anything else."""

    silent = scripts(st.none(), fewest=1)
    said = st.integers(0, 2).map(lambda callback: [answer if c == callback else None for c in range(3)])
    return st.builds(answering_once, silent, st.integers(0, 20), said | st.just([answer] * 3))


def answering_once(script: Script, nth: int, said: Sequence[str | None]) -> Script:
    """The script in which callback c answers said[c] to one event, which `nth` chooses, and nothing to any other."""
    count = len(script.answers)
    silent = Script(script.epochs, script.steps_per_epoch, script.limit, ((),) * count)
    before = (None,) * (nth % (len(lifecycle(silent).told) // count))
    answers = tuple((*before, said[callback % len(said)]) for callback in range(count))
    return Script(script.epochs, script.steps_per_epoch, script.limit, answers)


def callbacks(subject: Any, count: int, act: Callable[[int, str, Any], Any]) -> list[Any]:
    """Callbacks whose every hook does act(callback, event, context) and gives its answer."""

    def hook(event: str) -> Callable[[Any, Any], Any]:
        return lambda self, context: act(self.number, event, context)

    kind = type("Recorder", (subject.Callback,), {event: hook(event) for event in HOOKS})
    made = [kind() for _ in range(count)]
    for number, callback in enumerate(made):
        callback.number = number
    return made


class Recorder:
    """Writes down what callbacks are told, and answers as a script says; `before` may raise in a callback's place."""

    def __init__(self, script: Script, before: Callable[[int], None] = lambda call: None) -> None:
        self.script, self.before = script, before
        self.told: list[Told] = []
        self.losses: list[float | None] = []
        self.heard = [0] * len(script.answers)

    def act(self, callback: int, event: str, context: Any) -> Any:
        self.told.append(Told(callback, event, context.epoch, context.step))
        self.losses.append(context.loss)
        assert len(self.told) < FAR_TOO_MANY, f"the run goes on and on: {self.told[-1]}"
        nth, answers = self.heard[callback], self.script.answers[callback]
        self.heard[callback] += 1
        self.before(len(self.told) - 1)
        return action(answers[nth]) if nth < len(answers) else None


def action(name: str | None) -> Any:
    """The trainer's own action of that name."""
    return None if name is None else importlib.import_module("reference_trainer.plan").Action[name]


def tables(teacher: torch.Tensor, student: torch.Tensor, learning_rate: float = 1.0) -> tuple[Any, Any]:
    """A teacher and a student that are tables of logits; the student applies its gradient itself."""
    providers = importlib.import_module("reference_trainer.providers")
    return providers.FixtureTeacher(teacher), providers.FixtureStudent(student, learning_rate)


def module_student(module: torch.nn.Module, vocabulary: int) -> Any:
    """A student around a module, whose parameters an optimizer moves."""
    return importlib.import_module("reference_trainer.providers").ModuleStudent(module, vocabulary)


def parts(subject: Any, device: str = "cpu") -> dict[str, Any]:
    """What `train` takes besides schedule and callbacks: the smallest tables there are, and one batch over and over."""
    start = torch.tensor([[0.0, 1.0], [1.0, 0.0]], device=device)
    teacher, student = tables(-start, start)
    tokens = torch.tensor([[0, 1]], device=device)
    batch = subject.Batch(tokens=tokens, labels=tokens)
    return {
        "teacher": teacher,
        "student": student,
        "batch_at": lambda epoch, k: batch,
        "optimizer": None,
        "learning_rate": lambda step: 0.5,
    }


def run(subject: Any, script: Script, told: Sequence[Any], given: dict[str, Any]) -> Any:
    """A real training of these parts."""
    positional = [given[name] for name in ("teacher", "student", "batch_at", "optimizer")]
    return subject.train(
        *positional,
        schedule=subject.Schedule(epochs=script.epochs, steps_per_epoch=script.steps_per_epoch, limit=script.limit),
        objective=subject.Objective(**SETTINGS),
        callbacks=told,
        **{name: value for name, value in given.items() if name in ("learning_rate", "clock")},
    )


def assert_same_calls(seen: Sequence[Told], expected: Sequence[Told]) -> None:
    """The same hooks of the same callbacks in the same order, each with its epoch and step."""
    for place, (got, wanted) in enumerate(zip_longest(seen, expected)):
        before = f"after {seen[place - 1]}" if place else "as the first"
        assert got == wanted, f"call {place + 1} is {got}; expected {wanted}, {before}"
