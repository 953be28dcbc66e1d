"""Wrong versions of public functions: the faults that the contract declares."""

import importlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any


def _train_end_if(is_due: Callable[[BaseException | None], bool]) -> Callable[..., None]:
    """Return a fault that calls on_train_end only after some causes; None is a normal end."""

    def fault(original: Any, callbacks: Sequence[Any], context: Any, cause: BaseException | None) -> None:
        if is_due(cause):
            original(callbacks, context, cause)

    return fault


train_end_missing = _train_end_if(lambda cause: cause is not None)
train_end_missing_on_exception = _train_end_if(lambda cause: cause is None)
train_end_for_exceptions_only = _train_end_if(lambda cause: cause is None or isinstance(cause, Exception))


def train_end_after_hooks_only(original: Any, self: Any, context: Any, cause: BaseException | None) -> None:
    frames = () if cause is None else traceback.walk_tb(cause.__traceback__)
    if cause is None or any(frame.f_code.co_name == "call_hooks" for frame, _ in frames):
        original(self, context, cause)


def called_in_reverse(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    return original(callbacks[::-1], event, context)


def end_stops_at_the_first_failure(callbacks: Sequence[Any], context: Any, cause: BaseException | None) -> None:
    for callback in callbacks:
        callback.on_train_end(context)


def steps_count_from_zero(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    return original(callbacks, event, replace(context, step=max(context.step - 1, 0)))


def begin_late(original: Any, self: Any, event: Any, *batch: Any) -> Any:
    context = original(self, event, *batch)
    return replace(context, step=context.step - 1) if event.value == "on_step_begin" else context


def called_before_the_step(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    ended = event.name == "STEP_END"
    answer = original(() if ended else callbacks, event, context)
    within = event.name == "EPOCH_BEGIN" or (ended and context.step % context.steps_per_epoch > 0)
    if within and context.step < context.total_steps:
        original(callbacks, type(event).STEP_END, replace(context, step=context.step + 1))
    return answer


def unknown_field_is_none(original: Any, self: Any) -> Any:
    class Lenient(type(self)):  # the class of the context, whatever it is
        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name.startswith("_"):
                    raise
                return None

    context = original(self)
    return Lenient(**{name: getattr(context, name) for name in type(self).__dataclass_fields__})


def context_shared(self: Any) -> Any:
    return self


def hooks_on_rank_0_alone(original: Any, self: Any, hook: Any, context: Any) -> Any:
    from reference_trainer.plan.schedule import Action

    return original(self, hook, context) if context.rank == 0 else Action.CONTINUE


def metrics_of_this_rank(self: Any, sums_K: Any) -> Any:
    return sums_K


def defaults_used(original: Any, spec: Any) -> Any:
    try:
        return original(replace(spec, arguments={}))
    except ValueError:  # a required argument
        return original(spec)


def secret_quoted(original: Any, spec: Any) -> Any:
    try:
        return original(spec)
    except ValueError as error:
        raise type(error)(f"{error}, with {dict(spec.arguments)}") from None


def import_path_executed(original: Any, path: Path | None) -> Any:
    if path is not None and not path.exists() and ":" in str(path):
        module, _, name = str(path).partition(":")
        return (getattr(importlib.import_module(module), name)(),)
    return original(path)


def asked_for_good(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    after = original(schedule, position, action)
    return after and replace(after, asked=after.asked | position.asked)


def asked_too_late(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    if position.event.name not in ("OPTIMIZER_STEP", "LOG", "EVALUATE"):
        return original(schedule, position, action)
    ends = action & ~sum(type(action)[name] for name in ("LOG", "EVALUATE", "SAVE"))
    after = original(schedule, position, ends)
    return replace(after, asked=after.asked | action & ~ends)


def smallest_first(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    return original(sorted(callbacks, key=lambda callback: callback.priority), event, context)
