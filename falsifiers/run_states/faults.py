"""Wrong versions of public functions: the faults that the contract declares."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any


def due_steps_only(original: Any, *arguments: Any, services: Any = None, **rest: Any) -> Any:
    due = replace(services, save=lambda run: services.save(run) if run.due else None)
    return original(*arguments, services=due, **rest)


def asked_forgotten(original: Any, state: Any) -> str:
    position = replace(state.position, asked=type(state.position.asked)(0))
    text: str = original(replace(state, position=position))
    return text


def request_hidden_by_failure(
    original: Any, *arguments: Any, batch_at: Any = None, services: Any = None, **rest: Any
) -> Any:
    failed = False

    def fetched(*place: int) -> Any:
        nonlocal failed
        failed = True
        batch = batch_at(*place)
        failed = False
        return batch

    hidden = replace(services, stop_requested=lambda: not failed and services.stop_requested())
    return original(*arguments, batch_at=fetched, services=hidden, **rest)


SHARED: list[Any] = []
"""Contexts that `contexts_share_their_losses` has completed."""


def contexts_share_their_losses(original: Any, self: Any, values: Mapping[str, Any]) -> None:
    original(self, values)
    if "loss" in values:
        for earlier in SHARED:
            original(earlier, values)
        SHARED.append(self)


LOSSES: list[float] = []
"""Losses of the steps of an epoch, for `mean_of_means`."""


def mean_of_means(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    if event.name == "EPOCH_BEGIN":
        LOSSES.clear()
    if event.name == "STEP_END" and context.loss is not None:
        LOSSES.append(context.loss)
    if event.name == "EPOCH_END" and LOSSES:
        context = replace(context, loss=sum(LOSSES) / len(LOSSES))
    return original(callbacks, event, context)


def empty_epoch_is_perfect(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    empty = event.name == "EPOCH_END" and context.loss is None
    return original(callbacks, event, replace(context, loss=0.0) if empty else context)


def metrics_of_fewer_tokens(sums: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sums)
