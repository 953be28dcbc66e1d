"""What a callback is, what it is told, and how the callbacks of a run are called.

They are called in the loop's own thread, in the order in which they were registered, every one of them at every event.
An answer is an `Action`, or None for `Action.CONTINUE`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reference_trainer.errors import CallbackError
from reference_trainer.plan import Action, Event

__all__ = ["Callback", "Context", "ask", "checked", "tell_the_end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a run stands.

    step: optimizer steps taken, in all; 0 before the first. epoch: the present one, from 1; 0 before the first.
    loss: nats per scored token, before that step's update. At `on_epoch_end` it is the epoch's mean over its scored
    tokens, elsewhere the last step's; None where no token was scored.
    learning_rate: of the last step; None before the first. best_loss: the smallest finite loss of a step so far.
    elapsed_s: seconds since `on_train_begin`. tokens: scored tokens so far. total_steps: as planned.
    """

    step: int
    epoch: int
    loss: float | None
    learning_rate: float | None
    best_loss: float | None
    elapsed_s: float
    tokens: int
    epochs: int
    steps_per_epoch: int
    total_steps: int


class Callback:
    """Override what you want to hear of. An exception ends the run; `on_train_end` is called nevertheless."""

    def on_train_begin(self, context: Context) -> Action | None:
        """Once, before anything else."""
        return None

    def on_epoch_begin(self, context: Context) -> Action | None:
        """SKIP or STOP: the epoch is closed without a step."""
        return None

    def on_step_end(self, context: Context) -> Action | None:
        """After each optimizer step. SKIP: the epoch ends here. STOP: the run ends here, its epoch closed."""
        return None

    def on_epoch_end(self, context: Context) -> Action | None:
        """After each epoch that ended otherwise than by an exception."""
        return None

    def on_train_end(self, context: Context) -> None:
        """Exactly once on every way out, exceptions of other callbacks included."""


def checked(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """The callbacks, if that is what they are; else `CallbackError`."""
    callbacks = tuple(callbacks)  # gone through once: a generator would come out of the check empty
    for place, callback in enumerate(callbacks, start=1):
        if not isinstance(callback, Callback):
            hint = "its class instead of an instance" if isinstance(callback, type) else f"a {type(callback).__name__}"
            raise CallbackError(f"callback {place} is {hint}; expected an instance of reference_trainer's Callback")
    return callbacks


def ask(callbacks: Sequence[Callback], event: Event, context: Context) -> Action:
    """Calls one hook of every callback, in order; the strongest answer. Errors: theirs, and `CallbackError`."""
    strongest = Action.CONTINUE
    for callback in callbacks:
        answer = getattr(callback, event.value)(context)
        if answer is not None and not isinstance(answer, Action):
            raise CallbackError(
                f"{type(callback).__name__}.{event.value} answered {answer!r}; expected Action.CONTINUE, Action.SKIP, "
                f"Action.STOP or None"
            )
        strongest = max(strongest, answer or Action.CONTINUE)
    return strongest


def tell_the_end(callbacks: Sequence[Callback], context: Context, cause: BaseException | None) -> None:
    """Calls `on_train_end` of every callback, whatever the others do.

    `cause` is the exception that ended the run. It stays the one that the caller sees: what callbacks raise here is
    noted on it. Without a cause the first such exception is raised, the others noted on it.
    """
    first = cause
    for callback in callbacks:
        try:
            callback.on_train_end(context)
        except BaseException as error:  # an exit or interrupt in one callback must not keep the others from their end
            if first is None:
                first = error
            else:
                first.add_note(f"and {type(callback).__name__}.on_train_end raised {type(error).__name__}: {error}")
    if cause is None and first is not None:
        raise first
