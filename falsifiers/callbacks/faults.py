"""Wrong versions of public functions: the faults that the contract `callbacks` declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any


def train_end_missing(original: Any, callbacks: Sequence[Any], context: Any, cause: BaseException | None) -> None:
    """Call on_train_end after an exception only."""
    if cause is not None:
        original(callbacks, context, cause)


def train_end_missing_on_exception(
    original: Any, callbacks: Sequence[Any], context: Any, cause: BaseException | None
) -> None:
    """Call on_train_end after a normal end only."""
    if cause is None:
        original(callbacks, context, cause)


def train_end_for_exceptions_only(
    original: Any, callbacks: Sequence[Any], context: Any, cause: BaseException | None
) -> None:
    """Do not call on_train_end after an interrupt or an exit."""
    if cause is None or isinstance(cause, Exception):
        original(callbacks, context, cause)


def failed_step_counted(original: Any, callbacks: Sequence[Any], context: Any, cause: BaseException | None) -> None:
    """Count the step in which an exception was raised."""
    original(callbacks, replace(context, step=context.step + (cause is not None)), cause)


def end_stops_at_the_first_failure(callbacks: Sequence[Any], context: Any, cause: BaseException | None) -> None:
    """Let the first exception of on_train_end skip the other callbacks."""
    for callback in callbacks:
        callback.on_train_end(context)


def steps_count_from_zero(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Report the first step as step 0."""
    return original(callbacks, event, replace(context, step=max(context.step - 1, 0)))


def callbacks_reversed(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Call the callback registered last first."""
    return original(callbacks[::-1], event, context)


def stop_silences_the_rest(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Do not call the callbacks after the one that answers STOP."""
    answer = original((), event, context)
    for callback in callbacks:
        answer = max(answer, original([callback], event, context))
        if answer.name == "STOP":
            break
    return answer


def last_answer_counts(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Let the answer of a later callback replace that of an earlier one."""
    answers = [original([callback], event, context) for callback in callbacks]
    return answers[-1] if answers else original((), event, context)


def stop_at_epoch_begin_ignored(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Take the first step of an epoch although on_epoch_begin answered STOP."""
    ignored = position.event.name == "EPOCH_BEGIN" and action.name == "STOP"
    return original(schedule, position, type(action).CONTINUE if ignored else action)


def skip_ignored(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Treat SKIP as CONTINUE."""
    return original(schedule, position, type(action).CONTINUE if action.name == "SKIP" else action)


def skip_taken_for_stop(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Treat SKIP as STOP."""
    return original(schedule, position, type(action).STOP if action.name == "SKIP" else action)


def objective_weights_swapped(original: Any, *models: Any, objective: Any, **others: Any) -> Any:
    """Exchange the weights of labels and teacher."""
    exchanged = replace(objective, ce_weight=objective.kd_weight, kd_weight=objective.ce_weight)
    return original(*models, objective=exchanged, **others)


def rate_one_step_late(original: Any, *models: Any, learning_rate: Callable[[int], float], **others: Any) -> Any:
    """Take a step at the rate of the previous one."""
    return original(*models, learning_rate=lambda step: learning_rate(max(step - 1, 1)), **others)


def final_loss_is_the_best(original: Any, *models: Any, **others: Any) -> Any:
    """Report the best loss as the final one."""
    result = original(*models, **others)
    return replace(result, final_loss=result.best_loss)


def begin_late(original: Any, self: Any, event: Any, *batch: Any) -> Any:
    """Give the begin of a step the number of the steps taken."""
    context = original(self, event, *batch)
    return replace(context, step=context.step - 1) if event.value == "on_step_begin" else context


def hook_not_named(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Let an exception of a hook pass without the name of the hook."""
    try:
        return original(callbacks, event, context)
    except Exception as error:
        vars(error).pop("__notes__", None)
        raise


def context_shared(self: Any) -> Any:
    """Give every hook the context of the event."""
    return self


def context_shallow(original: Any, self: Any) -> Any:
    """Copy the mappings, but share what they hold."""
    own = original(self)
    for name in ("metrics", "validation_metrics", "batch_metrics"):
        object.__setattr__(own, name, dict(getattr(self, name)))
    return own


def context_assignable(original: Any, self: Any) -> Any:
    """Return a context whose fields can be assigned."""
    return type("Assignable", (type(self),), {"__setattr__": object.__setattr__}).incomplete({}, original(self)._late)
