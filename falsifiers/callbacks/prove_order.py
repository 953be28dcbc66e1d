"""Predicate over a bounded box: which callback is called at which event. The subject has `call_hooks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from falsifiers.callbacks.lifecycle import HOOKS, TAKING, Script, lifecycle
from reference_trainer.callbacks.base import Callback
from reference_trainer.plan.schedule import START, Action, Position, Schedule, next_position


@dataclass(frozen=True, slots=True)
class _Context:
    """A context of the step alone, which takes less time than a whole one."""

    step: int

    def for_hook(self) -> _Context:
        return self


def prove_callbacks_are_called_in_order(subject: Any, callbacks: int, steps: int, per_epoch: int) -> None:
    """Compare the (event, step, callback) of a run without models with plain nested loops."""
    calls: list[tuple[str, int, int]] = []
    registered = [_recording(number, calls) for number in range(callbacks)]
    epochs = -(-steps // per_epoch)
    schedule = Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=steps)
    position: Position | None = START
    while position is not None:
        subject.call_hooks(registered, position.event, _Context(position.step))
        position = next_position(schedule, position, Action.CONTINUE)
    planned = lifecycle(Script(epochs, per_epoch, steps, ((),) * callbacks)).calls
    # Events within a step are no positions of a schedule.
    expected = [(call.event, call.taken, call.callback) for call in planned if call.event not in TAKING]
    assert calls == expected, (
        f"{callbacks} callbacks, {steps} steps, {per_epoch} an epoch: {calls}; expected {expected}"
    )


def _recording(number: int, calls: list[tuple[str, int, int]]) -> Callback:
    """Return a callback whose every hook adds (hook, step, number) to `calls`."""

    def hook(event: str) -> Any:
        return lambda self, context: calls.append((event, context.step, number))

    callback: Callback = type("Recorder", (Callback,), {event: hook(event) for event in HOOKS})()
    return callback
