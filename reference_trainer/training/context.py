"""The context that every hook receives, with values that are read from the device when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Context"]


class _Readable:
    """Attributes that are read from the device when the first of them is asked for."""

    __slots__ = ("_read",)
    _read: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that is not set yet. Raise `AttributeError` for one that reading does not set."""
        if name.startswith("_") or not hasattr(self, "_read"):
            raise AttributeError(name)
        self._read()
        return object.__getattribute__(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(_Readable):
    """State of a run at an event.

    step: optimizer steps taken in the run; 0 before the first. epoch: the current one, from 1; 0 before the first.
    loss: nats per scored token, before the update of that step. At `on_epoch_end` it is the epoch's mean over its
    scored tokens, elsewhere the loss of the last step; None if no token was scored.
    learning_rate: of the last step; None before the first. best_loss: the smallest finite loss of a step so far.
    elapsed_s: seconds since `on_train_begin`. tokens: scored tokens so far. total_steps: as planned.
    metrics: at `on_step_end` of a logged step, means over the tokens that were scored since the last logged one;
    elsewhere empty. gradient_norm (before clipping), kl_at_T and a loss of weight 0 are those of the logged step alone.

    loss, best_loss and tokens are read from the device when one of them is first asked for. On several ranks they are
    those of the last step that every rank has read: a logged step, or the end of an epoch.
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

    @classmethod
    def incomplete(cls, read: Callable[[], None], known: Mapping[str, Any]) -> Context:
        """Return a context without the values that `read` will `complete`."""
        context = object.__new__(cls)
        context.complete({"_read": read, **known})
        return context

    def complete(self, values: Mapping[str, Any]) -> None:
        """Set the values that were read from the device."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
