"""Wrong versions of public functions: the faults that the contract `run-reads` declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

SHARED: list[Any] = []
"""Contexts that `contexts_share_their_losses` has completed."""


def read_at_every_step(original: Any, self: Any, window: Any, gradient_norm: Any) -> None:
    """Read the scored tokens of every step."""
    original(self, window, gradient_norm)
    window.total.item()


def read_for_callbacks(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Read the loss of every step for callbacks that do not ask for it."""
    str(context.loss)
    return original(callbacks, event, context)


def one_read_for_each_step(original: Any, self: Any) -> Iterator[Any]:
    """Read the sums of each step by themselves."""
    for number, step in enumerate(original(self)):
        if number:
            torch.zeros(()).item()
        yield step


def only_the_last_step(original: Any, self: Any) -> Iterator[Any]:
    """Count the last of the steps that are read together."""
    return iter(list(original(self))[-1:])


def contexts_share_their_losses(original: Any, self: Any, values: Mapping[str, Any]) -> None:
    """Give contexts of earlier steps the losses of later ones."""
    original(self, values)
    if "loss" in values:
        for earlier in SHARED:
            original(earlier, values)
        SHARED.append(self)


def metrics_of_the_last_step(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    """Forget the metrics of the steps before the logged one."""
    self.interval = {}
    original(self, sums, sequences)


def losses_alone_over_the_window(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    """Forget all but the losses of the steps before the logged one."""
    self.interval = {name: each for name, each in self.interval.items() if name in ("loss", "hard_loss", "soft_loss")}
    original(self, sums, sequences)


def any_tokens_covered(sums: Mapping[str, Any]) -> dict[str, Any]:
    """Report every sum over the tokens that it happens to cover."""
    return dict(sums)


def epochs_mixed(original: Any, self: Any, sums: Mapping[str, Any], sequences: int) -> None:
    """Keep the nats of earlier epochs in the loss of an epoch."""
    original(self, sums, sequences)
    self.epoch = type(self.epoch)(self.epoch.sum, self.tokens)


def rates_of_the_whole_run(original: Any, elapsed_s: float, **amounts: float) -> dict[str, float]:
    """Return rates whose amounts were never reset: twice those of the steps since the last logged one."""
    return {name: 2 * rate for name, rate in original(elapsed_s, **amounts).items()}


def counted_from_the_start(original: Any, record: Any, *given: Any, **named: Any) -> None:
    """Count steps and tokens of a resumed run from 0."""
    original(record, *given, **named)
    record.logged = (record.logged[0], 0, 0)


def count_in_the_time(original: Any, record: Any) -> None:
    """Keep the time in which operations are counted."""
    began = record.began
    original(record)
    record.began = began
