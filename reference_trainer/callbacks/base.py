"""The base class of callbacks, the context that hooks receive, and functions that check and call callbacks.

Hooks are called in the thread of the loop, on every rank, on every callback that overrides the hook: callbacks of a
larger `priority` first, then in the order of registration. A hook returns an `Action`, or None for `Action.CONTINUE`.
Values of the context are computed, or read from the device, when a hook reads them.
"""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

from reference_trainer.errors import CallbackError, CallbackNote
from reference_trainer.plan.schedule import Action, Event


class _LazyAttributes:
    """Attributes that are computed when they are first read.

    Attributes:
        _lazy: The function that computes an attribute, by name.
        _read: Reads all other attributes from the device together.
    """

    __slots__ = ("_lazy", "_read")
    _lazy: Mapping[str, Callable[[], object]]
    _read: Callable[[], None]

    def __getattr__(self, name: str) -> object:
        """Compute an attribute that is not set yet. Raise `AttributeError` if there is no such attribute."""
        # Python calls this method only for attributes that are not set, so a value is computed once.
        if name.startswith("_") or not hasattr(self, "_lazy"):
            raise AttributeError(name)
        if name in self._lazy:
            object.__setattr__(self, name, self._lazy[name]())
        elif hasattr(self, "_read"):
            self._read()
        return object.__getattribute__(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(_LazyAttributes):
    """State of a run at an event. All fields are set on every rank.

    Memory, and values on the device, are read when a hook first reads them. On several ranks, loss, best_loss, tokens
    and sequences have the values of the last position at which all ranks read them: a logged, evaluated or saved step,
    or the end of an epoch.

    Attributes:
        step: From `on_step_begin` to `on_step_end` the number of the step, from 1; elsewhere the number of optimizer
            steps taken.
        epoch: The current epoch, from 1; 0 before the first.
        hook: The name of the hook.
        micro_batch: In `on_before_forward` and `on_after_backward` the number of the micro-batch in the step, from 1;
            elsewhere None.
        loss: Nats per scored token of the last step, before its update; at `on_epoch_end` the mean over all scored
            tokens of the epoch. None if no token was scored.
        learning_rate: The learning rate of the last step taken; None before the first step.
        best_loss: The smallest finite loss of a step so far.
        elapsed_s: Seconds since `on_train_begin`; in a resumed run, including the seconds before its checkpoint.
        tokens: The number of scored tokens so far, of all ranks.
        sequences: The number of sequences with a scored token so far, of all ranks.
        epochs: The number of planned epochs.
        steps_per_epoch: The number of optimizer steps of an epoch.
        total_steps: The number of planned steps.
        metrics: From `on_log` to `on_step_end` of a logged step, means over the tokens scored since the last logged
            step, with gradient_norm, temperature and weights of this step; elsewhere empty.
        gradient_norm: From `on_pre_optimizer_step` to `on_step_end`, the norm before clipping; None in a step that is
            neither logged nor clipped, and in the `on_step_end` that a resumed run repeats.
        batch_metrics: In `on_after_backward`, loss and tokens of the micro-batch on this rank; elsewhere empty.
        validation_metrics: After an evaluation, its metrics until `on_step_end`; elsewhere empty.
        checkpoint_path: After a save, the path of the checkpoint until `on_step_end`; elsewhere None.
        memory: Bytes that PyTorch has allocated on the GPU of this process; without a GPU, the process's bytes in main
            memory, or None if unknown.
        rank: The number of this process, from 0.
        local_rank: The number of this process on its machine, from 0.
        world_size: The number of processes.
        run: The name of the run.
        attempt: A number of this start of the run, larger than the numbers of earlier starts. It distinguishes the
            events that a resumed run repeats.
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
    metrics: Mapping[str, float] = field(default_factory=dict)
    hook: str = ""
    micro_batch: int | None = None
    sequences: int = 0
    gradient_norm: float | None = None
    batch_metrics: Mapping[str, float] = field(default_factory=dict)
    validation_metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint_path: str | None = None
    memory: int | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    run: str = ""
    attempt: int = 1

    @property
    def is_world_process_zero(self) -> bool:
        """Return whether this process is the first of all."""
        return self.rank == 0

    @property
    def is_local_process_zero(self) -> bool:
        """Return whether this process is the first of its machine."""
        return self.local_rank == 0

    @property
    def steps_per_s(self) -> float | None:
        """Return the steps per second since `on_train_begin`, None if no time has passed.

        `metrics` contains the steps per second since the last logged step.
        """
        return self.step / self.elapsed_s if self.elapsed_s > 0 else None

    @property
    def tokens_per_s(self) -> float | None:
        """Return the scored tokens per second since `on_train_begin`; None if no time has passed."""
        return self.tokens / self.elapsed_s if self.elapsed_s > 0 else None

    @classmethod
    def incomplete(
        cls,
        values: Mapping[str, object],
        lazy: Mapping[str, Callable[[], object]],
        read: Callable[[], None] | None = None,
    ) -> Context:
        """Return a context in which some values are computed or read when they are first needed.

        Args:
            values: The values that are available now, by name.
            lazy: Functions that compute other values, by name.
            read: Reads all remaining values and passes them to `complete`; None if no value remains.
        """
        context = object.__new__(cls)  # `__init__` would require all values
        context.complete({**values, "_lazy": lazy} | ({} if read is None else {"_read": read}))
        return context

    def snapshot(self) -> Context:
        """Return a deep copy with all values computed and read."""
        return Context(**{name: self._copy(name) for name in _FIELDS})

    def for_hook(self) -> Context:
        """Return a deep copy for one hook. Values that are not set yet are read through this context."""
        return Context.incomplete({}, {name: partial(self._copy, name) for name in _FIELDS})

    def _copy(self, name: str) -> Any:
        value = getattr(self, name)
        return copy.deepcopy(value) if isinstance(value, Mapping) else value

    def complete(self, values: Mapping[str, object]) -> None:
        """Set values by name, such as the values that were read from the device."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


_FIELDS = [field.name for field in fields(Context)]


SILENT = (Event.SAVE, Event.TRAIN_END)
"""Events whose hooks must return None: a checkpoint cannot hold the action of its own event, and no event follows
the end. `call_train_end` ignores the value that `on_train_end` returns."""


class Callback:
    """Base class of callbacks: override the hooks you need. A hook that no callback overrides costs no time.

    Hooks are plain functions, and the name of no other method may start with `on_`: `as_callbacks` refuses misspelt and
    asynchronous hooks. An exception in a hook ends the run; `on_train_end` is still called.

    If `on_step_begin` returns SKIP or STOP, the step is not taken. If a later hook of the step returns SKIP or STOP,
    the action takes effect after `on_step_end`. LOG, EVALUATE and SAVE are carried out in the current step if their
    event has not passed yet, else in the next step; a SAVE after the last step is carried out at the end of the run. If
    one rank returns an action, all ranks carry it out: up to one step later on several ranks, and up to two steps later
    on several GPUs.

    In a resumed run, `on_train_begin` is followed by `on_save`, if the checkpoint is in the output directory of this
    run, and by `on_step_end` of the saved step.

    A callback that is used in several runs must reset its state in `on_train_begin`, unless `load_state_dict` was
    called just before.

    Attributes:
        priority: Callbacks with a larger priority are called first at every event, with equal priority in the order of
            registration.
    """

    priority: int = 0

    def attach(self, pipeline: object) -> None:
        """Called once with the prepared `Distillation`, before the training. `loop.train` does not call this method."""

    def state_dict(self) -> Mapping[str, object]:
        """Return the state to save in checkpoints, as JSON values; empty by default. Observers have no saved state."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Called before `on_train_begin` of a resumed run, with the saved result of `state_dict`."""

    def on_train_begin(self, context: Context) -> Action | None:
        """Called once, before all other hooks."""
        return None

    def on_epoch_begin(self, context: Context) -> Action | None:
        """Called before the first step of each epoch. SKIP or STOP closes the epoch without a step."""
        return None

    def on_step_begin(self, context: Context) -> Action | None:
        """Called before each step, with its number. SKIP or STOP prevents the step: `on_epoch_end` is next."""
        return None

    def on_before_forward(self, context: Context) -> Action | None:
        """Called before the forward of each micro-batch."""
        return None

    def on_after_backward(self, context: Context) -> Action | None:
        """Called after the backward of each micro-batch."""
        return None

    def on_pre_optimizer_step(self, context: Context) -> Action | None:
        """Called when the gradient of the step is complete and clipped, before the weights change."""
        return None

    def on_optimizer_step(self, context: Context) -> Action | None:
        """Called after the weights have changed, before the gradient is cleared."""
        return None

    def on_log(self, context: Context) -> Action | None:
        """Called in each logged step, with its metrics."""
        return None

    def on_evaluate(self, context: Context) -> Action | None:
        """Called after each evaluation, with `validation_metrics`."""
        return None

    def on_save(self, context: Context) -> None:
        """Called after each checkpoint, with its path, on every rank.

        The hook must return None, because a resumed run could not restore an action. The files may still be written in
        the background.
        """

    def on_step_end(self, context: Context) -> Action | None:
        """Called at the end of each step. SKIP ends the epoch; STOP closes the epoch and ends the run."""
        return None

    def on_epoch_end(self, context: Context) -> Action | None:
        """Called after each epoch, unless an exception ended it."""
        return None

    def on_train_end(self, context: Context) -> None:
        """Called exactly once at the end of the run, also if the run or `on_train_end` of another callback raised."""


def event_of(hook: Event | str) -> Event:
    """Return the event of a hook. Raise `CallbackError` for an unknown name."""
    if isinstance(hook, Event):
        return hook
    if hook not in [event.value for event in Event]:
        raise CallbackError(f"unknown hook {hook!r} ({_hint(str(hook))})")
    return Event(hook)


def _hint(name: str) -> str:
    """Return a suggestion for the name of a hook."""
    hooks = [event.value for event in Event]
    matches = difflib.get_close_matches(name, hooks, cutoff=0.8)
    return f"did you mean {matches[0]!r}?" if matches else f"choose from {', '.join(hooks)}"


def has_hook(callback: Callback, event: Event) -> bool:
    """Return whether the class of the callback, or the callback itself, overrides the hook of an event."""
    return inspect.getattr_static(callback, event.value, None) is not getattr(Callback, event.value)


def as_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple.

    Raise `CallbackError` for anything but an iterable of instances of `Callback`, for a `priority` that is no integer,
    for a method that starts with `on_` and is not a hook, and for a hook that is a coroutine or a generator function.
    Helpers with other names, properties and attributes that are not callable are accepted.
    """
    if not isinstance(callbacks, Iterable):
        name = type(callbacks).__name__
        raise CallbackError(f"callbacks is a {name}; expected a list of instances of reference_trainer's Callback")
    callbacks = tuple(callbacks)  # iterate only once: a generator would be empty after the check
    for position, callback in enumerate(callbacks, start=1):
        if not isinstance(callback, Callback):
            actual = f"the class {callback.__name__}" if isinstance(callback, type) else f"a {type(callback).__name__}"
            raise CallbackError(
                f"callback {position} is {actual}; expected an instance of reference_trainer's Callback"
            )
        if not isinstance(callback.priority, int):
            name, value = type(callback).__name__, callback.priority
            raise CallbackError(f"callback {position}: invalid priority {value!r} of {name}; expected an integer")
        _refuse_unknown_hooks(callback, position)
        _refuse_unawaited_hooks(callback, position)
    return callbacks


def _refuse_unknown_hooks(callback: Callback, position: int) -> None:
    hooks = [event.value for event in Event]
    for name in dir(callback):
        if name.startswith("on_") and name not in hooks and _is_method(callback, name):
            owner = type(callback).__name__
            raise CallbackError(f"callback {position}: unknown hook {name!r} of {owner} ({_hint(name)})")


def _is_method(callback: Callback, name: str) -> bool:
    """Return whether the attribute is callable, without evaluating a property."""
    attribute = inspect.getattr_static(callback, name, None)
    return not isinstance(attribute, property | cached_property) and callable(getattr(callback, name))


def _refuse_unawaited_hooks(callback: Callback, position: int) -> None:
    """Refuse hooks whose body would never run, because a call only creates a coroutine or a generator."""
    for event in Event:
        hook = getattr(callback, event.value)
        asynchronous = inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook)
        if asynchronous or inspect.isgeneratorfunction(hook):
            kind = "an async function, which nothing awaits" if asynchronous else "a generator, which nothing iterates"
            hook_name = f"{type(callback).__name__}.{event.value}"
            raise CallbackError(f"callback {position}: {hook_name} is {kind}; expected a plain function")


def call_hooks(callbacks: Sequence[Callback], event: Event, context: Context) -> Action:
    """Call the hook of an event on every callback, in order, with its own context; return the union of all actions.

    Raise `CallbackError` if a hook returns anything but an `Action` or None, or if a hook of an event in `SILENT` does
    not return None. Exceptions of hooks propagate; if the callback belongs to another package, with a `CallbackNote`.
    """
    actions = Action.CONTINUE
    for callback in callbacks:
        try:
            result = getattr(callback, event.value)(context.for_hook())
        except Exception as error:
            _note_hook(callback, event, error)
            raise
        if result is not None and (event in SILENT or not isinstance(result, Action)):
            names = ", ".join(f"Action.{name}" for name in Action.__members__)
            expected = "None" if event in SILENT else f"{names}, several of them or None"
            raise CallbackError(f"{type(callback).__name__}.{event.value} returned {result!r}; expected {expected}")
        actions |= result or Action.CONTINUE
    return actions


def _note_hook(callback: Callback, event: Event, error: BaseException) -> None:
    """Add a note with the name of the hook to an exception of the hook, unless the callback belongs to this package."""
    if callback.__module__.partition(".")[0] != __name__.partition(".")[0]:
        error.add_note(CallbackNote(f"raised by {type(callback).__name__}.{event.value}"))


def call_train_end(callbacks: Sequence[Callback], context: Context, cause: BaseException | None) -> None:
    """Call `on_train_end` of every callback, also after an exception of another callback.

    Exceptions of `on_train_end` become notes on the cause, which the caller raises. Without a cause, the first such
    exception is raised, with the later exceptions as notes.

    Args:
        callbacks: The callbacks, in order.
        context: The context of the event.
        cause: The exception that ended the run; None if the run succeeded.
    """
    first = cause
    for callback in callbacks:
        try:
            callback.on_train_end(context.for_hook())
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: call the other callbacks first
            if first is None:
                first = error
                _note_hook(callback, Event.TRAIN_END, error)
            else:
                first.add_note(f"and {type(callback).__name__}.on_train_end raised {type(error).__name__}: {error}")
    if cause is None and first is not None:
        raise first
