"""Calls of callbacks, simulated from the words of the contract, and a recorder of the calls of a real run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from hypothesis import strategies as st

from reference_trainer.training.schedule import Action

HOOKS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")
MAX_CALLS = 2000
ANSWERS = st.sampled_from([None, None, None, "CONTINUE", "SKIP", "STOP"])


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one hook of one callback (from 0), with the epoch and step of its context."""

    callback: int
    event: str
    epoch: int
    step: int

    def __str__(self) -> str:
        return f"{self.event} of callback {self.callback} in epoch {self.epoch} after step {self.step}"


@dataclass(frozen=True, slots=True)
class Script:
    """A schedule, and the answers of its callbacks: answers[c][n] to the n-th event (from 0), None beyond the list."""

    epochs: int
    steps_per_epoch: int
    limit: int | None
    answers: tuple[tuple[str | None, ...], ...]

    @property
    def total(self) -> int:
        planned = self.epochs * self.steps_per_epoch
        return planned if self.limit is None else min(planned, self.limit)

    def strongest(self, nth: int) -> str:
        given = [answers[nth] for answers in self.answers if nth < len(answers)]
        return next((name for name in ("STOP", "SKIP") if name in given), "CONTINUE")


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A run as the contract describes it: the calls, the steps taken, whether a callback answered STOP."""

    calls: list[Call]
    steps: int
    stopped: bool


def lifecycle(script: Script) -> Lifecycle:
    """Simulate a run: train_begin (epoch_begin step_end* epoch_end)* train_end, each on every callback."""
    calls: list[Call] = []
    answered: list[str] = []

    def call(event: str, epoch: int, step: int) -> str:
        calls.extend(Call(callback, event, epoch, step) for callback in range(len(script.answers)))
        answered.append("CONTINUE" if event == "on_train_end" else script.strongest(len(answered)))
        return answered[-1]

    step = epoch = 0
    call("on_train_begin", 0, 0)
    while "STOP" not in answered and epoch < script.epochs and step < script.total:
        epoch, taken = epoch + 1, 0
        answer = call("on_epoch_begin", epoch, step)
        while answer == "CONTINUE" and taken < script.steps_per_epoch and step < script.total:
            step, taken = step + 1, taken + 1
            answer = call("on_step_end", epoch, step)
        call("on_epoch_end", epoch, step)
    call("on_train_end", epoch, step)
    return Lifecycle(calls, step, "STOP" in answered)


@st.composite
def scripts(draw: st.DrawFn, answers: st.SearchStrategy[str | None], *, fewest: int = 0, most: int = 3) -> Script:
    """Draw a schedule of up to 12 steps; every callback may answer at every event."""
    epochs, steps_per_epoch = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    limit = draw(st.none() | st.integers(1, 14))
    rows = st.lists(answers, max_size=10).map(tuple)
    return Script(epochs, steps_per_epoch, limit, tuple(draw(st.lists(rows, min_size=fewest, max_size=most))))


def scripts_with_one(answer: str) -> st.SearchStrategy[Script]:
    """Draw a script in which one callback, or every one, gives this answer to one event; all other answers are None."""
    silent = scripts(st.none(), fewest=1)
    given = st.integers(0, 2).map(lambda callback: [answer if c == callback else None for c in range(3)])
    return st.builds(answering_once, silent, st.integers(0, 20), given | st.just([answer] * 3))


def answering_once(script: Script, nth: int, given: Sequence[str | None]) -> Script:
    """Return the script in which callback c answers given[c] to one event, chosen by `nth`, and None to all others."""
    count = len(script.answers)
    silent = Script(script.epochs, script.steps_per_epoch, script.limit, ((),) * count)
    before = (None,) * (nth % (len(lifecycle(silent).calls) // count))
    answers = tuple((*before, given[callback % len(given)]) for callback in range(count))
    return Script(script.epochs, script.steps_per_epoch, script.limit, answers)


class Recorder:
    """Record calls of hooks, and answer as a script says; `before` may raise in place of a callback."""

    def __init__(self, script: Script, before: Callable[[int], None] = lambda call: None) -> None:
        self.script, self.before = script, before
        self.calls: list[Call] = []
        self.losses: list[float | None] = []
        self.events = [0] * len(script.answers)

    def act(self, callback: int, event: str, context: Any) -> Action | None:
        self.calls.append(Call(callback, event, context.epoch, context.step))
        self.losses.append(context.loss)
        assert len(self.calls) < MAX_CALLS, f"the run does not end: {self.calls[-1]}"
        nth, answers = self.events[callback], self.script.answers[callback]
        self.events[callback] += 1
        self.before(len(self.calls) - 1)
        answer = answers[nth] if nth < len(answers) else None
        return None if answer is None else Action[answer]


def assert_same_calls(seen: Sequence[Call], expected: Sequence[Call]) -> None:
    """Assert the same hooks of the same callbacks in the same order, each with its epoch and step."""
    for place, (got, wanted) in enumerate(zip_longest(seen, expected)):
        before = f"after {seen[place - 1]}" if place else "as the first"
        assert got == wanted, f"call {place + 1} is {got}; expected {wanted}, {before}"
