"""The context that every hook receives, with values that are computed or read from the device when asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

__all__ = ["Context"]


class _Readable:
    """Attributes that are computed when they are first asked for.

    _late: how each of them is computed. _read: reads the others from the device, all at once.
    """

    __slots__ = ("_late", "_read")
    _late: Mapping[str, Callable[[], Any]]
    _read: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that is not set yet. Raise `AttributeError` for one that is not computed."""
        if name.startswith("_") or not hasattr(self, "_late"):
            raise AttributeError(name)
        if name in self._late:
            object.__setattr__(self, name, self._late[name]())
        elif hasattr(self, "_read"):
            self._read()
        return object.__getattribute__(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(_Readable):
    """State of a run at an event. On several ranks every field is set on each of them.

    step: from `on_step_begin` to `on_step_end` the number of the step, from 1; elsewhere the optimizer steps taken.
    epoch: the current one, from 1; 0 before the first. hook: the name of the hook that is called.
    micro_batch: in `on_before_forward` and `on_after_backward` its number in the step, from 1; elsewhere None.
    loss: nats per scored token, before the update of that step. At `on_epoch_end` it is the epoch's mean over its
    scored tokens, elsewhere the loss of the last step; None if no token was scored.
    learning_rate: of the last step taken; None before the first. best_loss: the smallest finite loss of a step so far.
    elapsed_s: seconds since `on_train_begin`, of the runs before this one too if it was resumed. tokens, sequences:
    scored and consumed so far, by all ranks. total_steps: as planned.
    metrics: from `on_log` to `on_step_end` of a logged step, means over the tokens that were scored since the last
    logged one; elsewhere empty. gradient_norm, temperature and weights are those of the step.
    gradient_norm: from `on_pre_optimizer_step` to `on_step_end`, before clipping; None where it is not measured, in a
    step that is neither logged nor clipped. batch_metrics: in `on_after_backward`, loss and tokens of the micro-batch
    of this rank; elsewhere empty. validation_metrics: of the step's evaluation, checkpoint_path: of its checkpoint,
    both up to `on_step_end`; empty and None in other steps.
    memory: bytes that this process holds, of the GPU if it computes on one. rank, local_rank: of this process among all
    `world_size`, and among those of its machine. run, attempt: name of the run, and number of this start of it: a
    resumed run has a larger one, and repeats events.

    Values on the device and memory are read when they are first asked for. On several ranks loss, best_loss, tokens and
    sequences are those of the last step that every rank has read: a logged, evaluated or saved step, or the end of an
    epoch.
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
        """Whether this process is the first of all."""
        return self.rank == 0

    @property
    def is_local_process_zero(self) -> bool:
        """Whether this process is the first of its machine."""
        return self.local_rank == 0

    @property
    def steps_per_s(self) -> float | None:
        """Steps per second of the whole run; None if no time has passed. `metrics` has that of the logged steps."""
        return self.step / self.elapsed_s if self.elapsed_s > 0 else None

    @property
    def tokens_per_s(self) -> float | None:
        """Scored tokens per second of the whole run; None if no time has passed."""
        return self.tokens / self.elapsed_s if self.elapsed_s > 0 else None

    @classmethod
    def incomplete(
        cls, known: Mapping[str, Any], late: Mapping[str, Callable[[], Any]], read: Callable[[], None] | None = None
    ) -> Context:
        """Return a context with the `known` values. `late` computes others; `read` will `complete` the rest."""
        context = object.__new__(cls)
        context.complete({**known, "_late": late} | ({} if read is None else {"_read": read}))
        return context

    def snapshot(self) -> Context:
        """Return a deep copy, in which everything is read."""
        return Context(**{name: self._copied(name) for name in _FIELDS})

    def for_hook(self) -> Context:
        """Return a deep copy for one hook, whose values are read through this context when they are asked for."""
        return Context.incomplete({}, {name: partial(self._copied, name) for name in _FIELDS})

    def _copied(self, name: str) -> Any:
        value = getattr(self, name)
        return copy.deepcopy(value) if isinstance(value, Mapping) else value

    def complete(self, values: Mapping[str, Any]) -> None:
        """Set the values that were read from the device."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


_FIELDS = [field.name for field in fields(Context)]
