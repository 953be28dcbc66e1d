"""Attacks on the log lines of a run: which lines, when, on which stream, and the cost of steps that are not logged."""

import io
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.run_lines import EPOCH, FIRST_STEP, METRICS_LINE, STEP, matcher
from reference_trainer.callbacks.base import Context
from reference_trainer.callbacks.progress import Lines

LOSSES = st.none() | st.floats(0, 1e6) | st.sampled_from([math.inf, math.nan])
SCHEDULES = st.tuples(st.integers(1, 3), st.integers(1, 9))
EVERY = st.integers(0, 12)


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
    stream = io.StringIO()
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
    """`taken` steps took `earlier` seconds before this run."""
    (left, words), stream = UNITS[seconds], io.StringIO()
    schedule, callback = (1, taken + 1 + left), subject.ProgressCallback(0, lines=Lines(stream))
    callback.on_train_begin(context(schedule, taken, None, earlier))
    for step in range(taken if taken else 1, taken + 4):  # a resumed run ends its saved step first
        callback.on_step_end(context(schedule, step, 1.0, earlier + seconds * (step - taken)))
    expected = FIRST_STEP.format(seconds=seconds, left=left, duration=words) + "\n"
    seen = stream.getvalue()
    assert seen == expected, f"after step {taken + 1} of {schedule[1]}, a run writes {seen!r}; expected {expected!r}"


@given(schedule=SCHEDULES, every=st.integers(1, 4))
def falsify_titled_lines_differ_from_student_lines(subject: Any, schedule: tuple[int, int], every: int) -> None:
    stream = io.StringIO()
    call_all(subject.ProgressCallback(every, lines=Lines(stream), title="teacher"), schedule, [1.0], "scored")
    seen, steps = stream.getvalue().splitlines(), schedule[0] * schedule[1]
    count = steps // every + (steps > 1)
    assert len(seen) == count and all("teacher" in line for line in seen), (
        f"{steps} steps of a teacher, logged every {every}: {seen}; expected {count} lines that name it"
    )
    matching = [line for line in seen if matcher(STEP).match(line) or matcher(EPOCH).match(line)]
    assert not matching, f"these lines about a teacher match the student's format: {matching}"


class Stream(io.StringIO):
    """A stream that notes writes and flushes."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    def write(self, text: str) -> int:
        self.notes.append("written")
        return super().write(text)

    def flush(self) -> None:
        self.notes.append("flushed")


class Spy:
    """A context that notes every attribute that is read, except the step."""

    def __init__(self, step: int, notes: list[str]) -> None:
        self.step, self.__notes = step, notes

    def __getattr__(self, name: str) -> Any:
        self.__notes.append(f"{name} was read")
        return {} if name == "metrics" else 1.0


@given(every=st.integers(0, 1000), times=st.integers(1, 1000), more=st.integers(0, 2))
def falsify_unlogged_step_does_no_work(subject: Any, every: int, times: int, more: int) -> None:
    notes, step = list[str](), max(every, 1) * times + more
    subject.ProgressCallback(every, lines=Lines(Stream(notes))).on_step_end(Spy(step, notes))
    if every and step % every == 0:
        assert {"flushed", "loss was read"} <= set(notes), f"step {step}, logged every {every}: only {notes}"
    else:
        assert not notes, f"step {step}, logged every {every}, is not logged, but {notes}"
