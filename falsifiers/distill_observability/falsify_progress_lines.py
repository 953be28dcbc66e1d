"""Attacks on the log lines of a run: which lines, when, on which stream, and the cost of steps that are not logged.

The subject has `ProgressCallback`, as `training.progress` does.
"""

from __future__ import annotations

import io
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.run_lines import EPOCH, FIRST_STEP, METRICS_LINE, STEP, matcher
from reference_trainer.training.callbacks import Context
from reference_trainer.training.lines import Lines

LOSSES = st.none() | st.floats(0, 1e6) | st.sampled_from([math.inf, math.nan])
SCHEDULES = st.tuples(st.integers(1, 3), st.integers(1, 9))
EVERY = st.integers(0, 12)


class Stream(io.StringIO):
    """A stream that counts writes and flushes, and raises `error` after `after` writes."""

    def __init__(self, error: Exception | None = None, after: int = 0, *, terminal: bool = False) -> None:
        super().__init__()
        self.error, self.after, self.terminal = error, after, terminal
        self.writes = self.flushes = self.raised = 0

    def write(self, text: str) -> int:
        if self.error is not None and self.writes >= self.after:
            self.raised += 1
            raise self.error
        self.writes += 1
        return super().write(text)

    def flush(self) -> None:
        self.flushes += 1

    def isatty(self) -> bool:
        return self.terminal


def context(schedule: tuple[int, int], step: int, loss: float | None, elapsed: float = 0.0, **others: Any) -> Any:
    epochs, per_epoch = schedule
    return Context(
        step=step,
        epoch=-(-step // per_epoch),
        loss=loss,
        learning_rate=0.1,
        best_loss=loss,
        elapsed_s=elapsed,
        tokens=step,
        epochs=epochs,
        steps_per_epoch=per_epoch,
        total_steps=epochs * per_epoch,
        **others,
    )


METRICS = {"none": {}, "nothing scored": {"temperature": 2.0}, "scored": {"temperature": 2.0, "loss": 0.25}}
"""Metrics of a logged step, by a name of the case."""


def call_all(callback: Any, schedule: tuple[int, int], losses: list[float | None], metrics: str = "none") -> None:
    """Call the callback for a whole run; step k has loss k of the repeated list and takes 3/4 s."""
    callback.on_train_begin(context(schedule, 0, None))
    for step in range(1, schedule[0] * schedule[1] + 1):
        now = context(schedule, step, losses[step % len(losses)], 0.75 * step, metrics=METRICS[metrics])
        callback.on_step_end(now)
        if step % schedule[1] == 0:
            callback.on_epoch_end(now)
    callback.on_train_end(now)


def expected_lines(schedule: tuple[int, int], losses: list[float | None], every: int, metrics: str) -> list[str]:
    """Return the lines of such a run."""
    (epochs, per_epoch), lines = schedule, list[str]()
    total = epochs * per_epoch
    if total > 1:
        left = total - 1
        lines.append(FIRST_STEP.format(seconds=0.75, left=left, duration=f"{0.75 * left:.0f} s"))
    for step in range(1, total + 1):
        loss = math.nan if (given := losses[step % len(losses)]) is None else given
        if every and not step % every:
            lines.append(STEP.format(step=step, total=total, loss=loss))
            lines += [METRICS_LINE.format(metrics="loss=0.25")] * (metrics == "scored")
        if step % per_epoch == 0:
            lines.append(EPOCH.format(epoch=step // per_epoch, epochs=epochs, loss=loss, elapsed_s=0.75 * step))
    return lines


@given(
    schedule=SCHEDULES,
    losses=st.lists(LOSSES, min_size=1, max_size=4),
    every=EVERY,
    metrics=st.sampled_from(sorted(METRICS)),
)
def falsify_log_lines(
    subject: Any, schedule: tuple[int, int], losses: list[float | None], every: int, metrics: str
) -> None:
    stream = Stream()
    call_all(subject.ProgressCallback(every, lines=Lines(stream)), schedule, losses, metrics)
    seen, expected = stream.getvalue().splitlines(keepends=True), expected_lines(schedule, losses, every, metrics)
    matching, steps = [line for line in seen if matcher(STEP).fullmatch(line.rstrip("\n"))], schedule[0] * schedule[1]
    due = steps // every if every else 0
    assert len(matching) == due, f"{len(matching)} step lines for {steps} steps, logged every {every}; expected {due}"
    assert seen == [f"{line}\n" for line in expected], f"logged every {every}: {seen}; expected {expected}"


UNITS = {0.5: (60, "30 s"), 1.2: (99, "119 s"), 2.0: (300, "10 min"), 7.5: (2000, "4.2 h")}
"""Seconds of a step, with the steps after it and what these take."""


@given(seconds=st.sampled_from(sorted(UNITS)), taken=st.integers(0, 50), earlier=st.sampled_from([0.0, 9.75, 3600.0]))
def falsify_first_step_is_followed_by_an_estimate(subject: Any, seconds: float, taken: int, earlier: float) -> None:
    """The first step that this run takes gives the rate, also if `taken` steps took `earlier` seconds before it."""
    (left, words), stream = UNITS[seconds], Stream()
    schedule, callback = (1, taken + 1 + left), subject.ProgressCallback(0, lines=Lines(stream))
    callback.on_train_begin(context(schedule, taken, None, earlier))
    for step in range(taken if taken else 1, taken + 4):  # a resumed run ends its saved step first
        callback.on_step_end(context(schedule, step, 1.0, earlier + seconds * (step - taken)))
    expected = FIRST_STEP.format(seconds=seconds, left=left, duration=words) + "\n"
    seen = stream.getvalue()
    assert seen == expected, f"after step {taken + 1} of {schedule[1]}, a run writes {seen!r}; expected {expected!r}"


@given(schedule=SCHEDULES, every=st.integers(1, 4))
def falsify_titled_lines_differ_from_student_lines(subject: Any, schedule: tuple[int, int], every: int) -> None:
    stream = Stream()
    call_all(subject.ProgressCallback(every, lines=Lines(stream), title="teacher"), schedule, [1.0], "scored")
    seen, steps = stream.getvalue().splitlines(), schedule[0] * schedule[1]
    count = steps // every + (steps > 1)
    assert len(seen) == count and all("teacher" in line for line in seen), (
        f"{steps} steps of a teacher, logged every {every}: {seen}; expected {count} lines that name it"
    )
    matching = [line for line in seen if matcher(STEP).match(line) or matcher(EPOCH).match(line)]
    assert not matching, f"these lines about a teacher match the student's format: {matching}"


class RecordedStep(int):
    """A step number that records when it is formatted."""

    def __new__(cls, value: int, notes: list[str]) -> RecordedStep:
        made = super().__new__(cls, value)
        made.notes = notes
        return made

    def _record(self, *arguments: Any) -> str:
        self.notes.append("the step was formatted")
        return str(int(self))

    __format__ = __str__ = __repr__ = _record


class Spy:
    """A context that records every attribute that is read, except the step."""

    def __init__(self, step: int, notes: list[str]) -> None:
        self.step, self.__notes = RecordedStep(step, notes), notes

    def __getattr__(self, name: str) -> Any:
        self.__notes.append(f"{name} was read")
        return {} if name == "metrics" else 1.0


@given(every=st.integers(0, 1000), times=st.integers(1, 1000), more=st.integers(0, 2))
def falsify_unlogged_step_does_no_work(subject: Any, every: int, times: int, more: int) -> None:
    stream, notes, step = Stream(), list[str](), max(every, 1) * times + more
    subject.ProgressCallback(every, lines=Lines(stream)).on_step_end(Spy(step, notes))
    done = [*notes, *["written"] * stream.writes, *["flushed"] * stream.flushes]
    if every and step % every == 0:
        assert done[-1] == "flushed" and "loss was read" in done, f"step {step}, logged every {every}, did only {done}"
    else:
        assert not done, f"step {step}, logged every {every}, is not logged, but {done}"
