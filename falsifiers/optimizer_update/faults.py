"""Wrong versions of public functions: the faults that the contract `optimizer-update` declares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

LOSSES: list[float] = []
"""Losses of the steps of an epoch, for `mean_of_means`."""


def mean_of_means(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Report the mean of the losses of its steps as the loss of an epoch."""
    if event.name == "EPOCH_BEGIN":
        LOSSES.clear()
    if event.name == "STEP_END" and context.loss is not None:
        LOSSES.append(context.loss)
    if event.name == "EPOCH_END" and LOSSES:
        context = replace(context, loss=sum(LOSSES) / len(LOSSES))
    return original(callbacks, event, context)


def empty_epoch_is_perfect(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Report a loss of 0 for an epoch without scored tokens."""
    empty = event.name == "EPOCH_END" and context.loss is None
    return original(callbacks, event, replace(context, loss=0.0) if empty else context)


def called_before_the_step(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Call on_step_end before its step is taken, after the previous event."""
    ended = event.name == "STEP_END"
    answer = original(() if ended else callbacks, event, context)
    within = event.name == "EPOCH_BEGIN" or (ended and context.step % context.steps_per_epoch > 0)
    if within and context.step < context.total_steps:
        original(callbacks, type(event).STEP_END, replace(context, step=context.step + 1))
    return answer


def loss_read_again(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Read the loss from a tensor again for callbacks."""
    if callbacks and context.loss is not None:
        context = replace(context, loss=torch.tensor(context.loss, dtype=torch.float64).item())
    return original(callbacks, event, context)


def gradients_zeroed(original: Any, parameters: Iterable[Any], rate: float) -> Any:
    """Set gradients to zero instead of None."""
    optimizer = original(parameters, rate)
    clear = optimizer.zero_grad
    optimizer.zero_grad = lambda set_to_none=True: clear(set_to_none=False)
    return optimizer


def decay_through_the_moments(original: Any, parameters: Iterable[Any], rate: float) -> Any:
    """Add weight decay to the gradient: Adam with L2 instead of AdamW."""
    parameters = list(parameters)
    chosen = original(parameters, rate).defaults
    return torch.optim.Adam(parameters, rate, chosen["betas"], chosen["eps"], chosen["weight_decay"])
