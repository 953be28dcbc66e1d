"""Calls of callbacks, simulated from the words of the contract, and a recorder of the calls of a real run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from operator import or_
from typing import Any

from hypothesis import strategies as st

from reference_trainer.plan.schedule import Action

STEPWISE = "before_forward after_backward pre_optimizer_step optimizer_step log evaluate save step_end"
HOOKS = tuple(f"on_{name}" for name in f"train_begin epoch_begin step_begin {STEPWISE} epoch_end train_end".split())
SILENT = ("on_save", "on_train_end")
"""Hooks that answer nothing."""
TAKING = ("on_before_forward", "on_after_backward", "on_pre_optimizer_step")
"""Hooks within a step whose update is not taken yet."""
MAX_CALLS = 5000
ANSWERS = st.sampled_from([None, None, None, "CONTINUE", "SKIP", "STOP"])
ASKED = ("LOG", "EVALUATE", "SAVE")
"""Answers that add an event to a step."""
ASKING = st.sampled_from([None, None, None, *ASKED, "EVALUATE|SAVE", "LOG|SKIP", "SAVE|STOP"])


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one hook of one callback (from 0), with epoch, step and micro-batch of its context."""

    callback: int
    event: str
    epoch: int
    step: int
    micro_batch: int | None = None

    @property
    def taken(self) -> int:
        """The steps whose update is taken."""
        return self.step - (self.event in ("on_step_begin", *TAKING))

    def __str__(self) -> str:
        where = "" if self.micro_batch is None else f", micro-batch {self.micro_batch}"
        return f"{self.event} of callback {self.callback} in epoch {self.epoch} at step {self.step}{where}"


@dataclass(frozen=True, slots=True)
class Script:
    """A schedule, and the answers of its callbacks: answers[c][n] to the n-th event (from 0), None beyond the list.

    An epoch has `micro_batches`, and a step takes up to `accumulation` of them. every: intervals of on_log, on_evaluate
    and the checkpoints.
    """

    epochs: int
    steps_per_epoch: int
    limit: int | None
    answers: tuple[tuple[str | None, ...], ...]
    accumulation: int = 1
    left: int = 1  # micro-batches of the last step of an epoch
    every: tuple[int, int, int] = (0, 0, 0)

    @property
    def total(self) -> int:
        planned = self.epochs * self.steps_per_epoch
        return planned if self.limit is None else min(planned, self.limit)

    def is_saved(self, step: int) -> bool:
        """Return whether a checkpoint of the step is due: at multiples of the interval, and after the last step."""
        every = self.every[2]
        return every > 0 and (step % every == 0 or step == self.total)

    @property
    def micro_batches(self) -> int:
        return (self.steps_per_epoch - 1) * self.accumulation + self.left

    def answered(self, nth: int) -> set[str]:
        """The names in the answers of all callbacks to the n-th event."""
        return {name for row in self.answers if nth < len(row) for name in (row[nth] or "").split("|")}

    def strongest(self, nth: int) -> str:
        return next((name for name in ("STOP", "SKIP") if name in self.answered(nth)), "CONTINUE")


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A run as the contract describes it: the calls, the steps taken, whether a callback answered STOP."""

    calls: list[Call]
    steps: int
    stopped: bool


def lifecycle(script: Script) -> Lifecycle:
    """Simulate a run, each event on every callback; an answer within a step counts after its end.

    LOG, EVALUATE and SAVE come once, in this step or else in the next one; SAVE also at the end.
    """
    calls: list[Call] = []
    answered: list[str] = []
    asked, saved = set[str](), 0

    def call(event: str, epoch: int, step: int, micro_batch: int | None = None) -> str:
        calls.extend(Call(callback, event, epoch, step, micro_batch) for callback in range(len(script.answers)))
        asked.update(set() if event in SILENT else script.answered(len(answered)) & set(ASKED))
        answered.append("CONTINUE" if event in SILENT else script.strongest(len(answered)))
        return answered[-1]

    def take(epoch: int, step: int, micro_batches: int) -> set[str]:
        nonlocal saved
        begun = len(answered)
        for k in range(1, micro_batches + 1):
            call("on_before_forward", epoch, step, k)
            call("on_after_backward", epoch, step, k)
        call("on_pre_optimizer_step", epoch, step)
        call("on_optimizer_step", epoch, step)
        logged, evaluated = (every > 0 and step % every == 0 for every in script.every[:2])
        for name, due in zip(ASKED, (logged, evaluated, script.is_saved(step)), strict=True):
            if due or name in asked:
                asked.discard(name)
                saved = step if name == "SAVE" else saved
                call(f"on_{name.lower()}", epoch, step)
        call("on_step_end", epoch, step)
        return set(answered[begun:])

    # Nested loops over epochs and steps, in place of the transitions between positions that the trainer has.
    step = epoch = 0
    call("on_train_begin", 0, 0)
    while "STOP" not in answered and epoch < script.epochs and step < script.total:
        epoch, taken = epoch + 1, 0
        answers = {call("on_epoch_begin", epoch, step)}
        while answers == {"CONTINUE"} and taken < script.steps_per_epoch and step < script.total:
            if (answer := call("on_step_begin", epoch, step + 1)) != "CONTINUE":
                answers = {answer}
                break
            step, taken = step + 1, taken + 1
            last = taken == script.steps_per_epoch
            answers = take(epoch, step, script.left if last else script.accumulation)
        call("on_epoch_end", epoch, step)
    if step > saved and (script.every[2] or "SAVE" in asked):
        call("on_save", epoch, step)
    call("on_train_end", epoch, step)
    return Lifecycle(calls, step, "STOP" in answered)


@st.composite
def scripts(draw: st.DrawFn, answers: st.SearchStrategy[str | None], *, fewest: int = 0, most: int = 3) -> Script:
    """Draw a schedule of up to 12 steps; every callback may answer at every event."""
    epochs, steps_per_epoch = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    limit = draw(st.none() | st.integers(1, 14))
    rows = st.lists(answers, max_size=24).map(tuple)
    drawn = tuple(draw(st.lists(rows, min_size=fewest, max_size=most)))
    accumulation = draw(st.integers(1, 3))
    left, every = draw(st.integers(1, accumulation)), draw(st.tuples(*[st.integers(0, 3)] * 3))
    return Script(epochs, steps_per_epoch, limit, drawn, accumulation, left, every)


def scripts_with_one(answer: str) -> st.SearchStrategy[Script]:
    """Draw a script in which one callback, or every one, gives this answer to one event; all other answers are None."""
    silent = scripts(st.none(), fewest=1)
    of_one = st.integers(0, 2).map(lambda callback: [answer if c == callback else None for c in range(3)])
    return st.builds(answering_once, silent, st.integers(0, 60), of_one | st.just([answer] * 3))


def answering_once(script: Script, nth: int, once: Sequence[str | None]) -> Script:
    """Return the script in which callback c answers once[c] to one event, chosen by `nth`, and None to all others."""
    count = len(script.answers)
    calls = lifecycle(replace(script, answers=((),) * count)).calls[::count]
    answering = [place for place, call in enumerate(calls) if call.event not in SILENT]
    before = (None,) * answering[nth % len(answering)]
    return replace(script, answers=tuple((*before, once[callback % len(once)]) for callback in range(count)))


class Recorder:
    """Record calls of hooks, and answer as a script says; `before` may raise in place of a callback."""

    def __init__(self, script: Script, before: Callable[[int], None] = lambda call: None) -> None:
        self.script, self.before = script, before
        self.calls: list[Call] = []
        self.losses: list[float | None] = []
        self.events = [0] * len(script.answers)

    def act(self, callback: int, event: str, context: Any) -> Action | None:
        self.calls.append(Call(callback, event, context.epoch, context.step, context.micro_batch))
        self.losses.append(context.loss)
        assert len(self.calls) < MAX_CALLS, f"the run does not end: {self.calls[-1]}"
        nth, answers = self.events[callback], self.script.answers[callback]
        self.events[callback] += 1
        self.before(len(self.calls) - 1)
        answer = answers[nth] if nth < len(answers) and event not in SILENT else None
        return None if answer is None else reduce(or_, (Action[name] for name in answer.split("|")))


def assert_same_calls(seen: Sequence[Call], expected: Sequence[Call]) -> None:
    """Assert the same hooks of the same callbacks in the same order, each with its epoch and step."""
    for place, (got, wanted) in enumerate(zip_longest(seen, expected)):
        before = f"after {seen[place - 1]}" if place else "as the first"
        assert got == wanted, f"call {place + 1} is {got}; expected {wanted}, {before}"
