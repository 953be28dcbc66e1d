"""Predicates over bounded boxes: which callbacks are called in which step.

The subject has `call_hooks` and `Callback`, as `training.callbacks` does; the schedule is the trainer's. Expectations
are closed forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference_trainer.training import schedule


@dataclass(frozen=True, slots=True)
class _Context:
    step: int

    def own(self) -> _Context:
        return self


def prove_callbacks_are_called_in_order(subject: Any, callbacks: int, steps: int, per_epoch: int) -> None:
    """(step, callback) of every on_step_end: in lexicographic order, without repeats or gaps."""
    calls = _calls(subject, callbacks, steps, per_epoch, None if steps else 0, callbacks // 2)
    expected = [(step, number) for step in range(1, steps + 1) for number in range(callbacks)]
    assert calls == expected, f"{callbacks} callbacks and {steps} steps: on_step_end calls (step, callback): {calls}"


def prove_stop_reaches_every_callback(subject: Any, callbacks: int, stop_at: int, stopping: int) -> None:
    """STOP at step `stop_at` (0: before the first) from callback `stopping`: so many steps, each on every callback."""
    calls = _calls(subject, callbacks, 32, 5, stop_at, stopping)
    expected = [(step, number) for step in range(1, stop_at + 1) for number in range(callbacks)]
    assert calls == expected, f"STOP at step {stop_at}: on_step_end calls (step, callback): {calls}"


def _calls(
    subject: Any, callbacks: int, steps: int, per_epoch: int, stop_at: int | None, stopping: int
) -> list[tuple[int, int]]:
    """Return (step, callback) of each on_step_end of a run of `steps` steps without models."""
    calls: list[tuple[int, int]] = []
    recorders = _recorders(subject, calls, callbacks, stop_at, stopping)
    plan, position = schedule.Schedule(epochs=33, steps_per_epoch=per_epoch, limit=max(steps, 1)), schedule.START
    for _ in range(200):
        answer = subject.call_hooks(recorders, position.event, _Context(position.step))
        no_step = stop_at == 0 and not callbacks  # without a callback the answer STOP is given here
        after = schedule.following(plan, position, schedule.Action.STOP if no_step else answer)
        if after is None:
            return calls
        position = after
    raise AssertionError(f"{plan} does not end: it is at {position}")


def _recorders(subject: Any, calls: list[tuple[int, int]], callbacks: int, stop_at: int | None, stopping: int) -> Any:
    """Return callbacks of one class that record their steps; number `stopping` answers STOP at step `stop_at`."""

    class Recorder(subject.Callback):
        def __init__(self, number: int) -> None:
            self.number = number

        def on_train_begin(self, context: Any) -> Any:
            return schedule.Action.STOP if (self.number, stop_at) == (stopping, 0) else None

        def on_step_end(self, context: Any) -> Any:
            calls.append((context.step, self.number))
            return schedule.Action.STOP if (self.number, context.step) == (stopping, stop_at) else None

    return [Recorder(number) for number in range(callbacks)]
