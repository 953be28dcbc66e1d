"""Wrong versions of public functions: the faults that the contract `run-states` declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reference_trainer.training.schedule import Event


def due_steps_only(original: Any, *given: Any, save: Any = None, **rest: Any) -> Any:
    """Hand over the steps whose checkpoint is due, and no other."""
    return original(*given, save=lambda run: save(run) if run.due else None, **rest)


def end_not_handed_over(original: Any, *given: Any, save: Any = None, **rest: Any) -> Any:
    """Hand over nothing at the end of the run."""
    return original(*given, save=lambda run: None if run.state.position.event is Event.TRAIN_END else save(run), **rest)


def evaluation_shared(original: Any, *given: Any, evaluate: Any = None, save: Any = None, **rest: Any) -> Any:
    """Save what the mapping of the evaluator holds by then."""
    last: list[Mapping[str, float]] = [{}]

    def measured() -> Any:
        last[:] = [evaluate()]
        return last[0]

    def saved(run: Any) -> Any:
        return save(replace(run, state=replace(run.state, validation=dict(last[0]))))

    return original(*given, evaluate=evaluate and measured, save=saved, **rest)


def answers_forgotten(original: Any, *given: Any, resumed: Any = None, **rest: Any) -> Any:
    """Resume without the answers of the saved step."""
    if resumed is not None:
        resumed = replace(resumed, position=replace(resumed.position, skipping=False, stopping=False))
    return original(*given, resumed=resumed, **rest)


def states_of_the_save_before(original: Any, self: Any) -> Any:
    """Return the states that were asked for the time before."""
    now = original(self)
    before, self.before = getattr(self, "before", now), now
    return before


def seconds_from_zero(original: Any, *given: Any, resumed: Any = None, **rest: Any) -> Any:
    """Resume without the seconds of the run before."""
    return original(*given, resumed=resumed and replace(resumed, elapsed_s=0.0), **rest)


def saved_twice(original: Any, *given: Any, save: Any = None, stop_requested: Any = lambda: False, **rest: Any) -> Any:
    """Save a due step again when the run is asked to stop in it."""
    last: list[Any] = []

    def saved(run: Any) -> Any:
        last[:] = [run]
        return save(run)

    def asked() -> bool:
        requested = bool(stop_requested())
        if requested and last and last[0].due:
            save(last[0])
        return requested

    return original(*given, save=saved, stop_requested=asked, **rest)


def resumed_step_saved(
    original: Any,
    *given: Any,
    save: Any = None,
    resumed: Any = None,
    stop_requested: Any = lambda: False,
    **rest: Any,
) -> Any:
    """Save the step that a resumed run began with when it is asked to stop in it."""
    from reference_trainer.training.result import Saved

    begun = resumed is None

    def asked() -> bool:
        nonlocal begun
        if stop_requested() and not begun:
            save(Saved(state=resumed, due=True, evaluated=False))
        begun = True
        return bool(stop_requested())

    return original(*given, save=save, resumed=resumed, stop_requested=asked, **rest)


def not_awaited(self: Any) -> None:
    """Wait for no observer."""


def left_open(self: Any) -> None:
    """Close nothing."""


def closed_by_the_run(original: Any, *given: Any, callbacks: Any = (), **rest: Any) -> Any:
    """Close the callbacks whosever they are."""
    try:
        return original(*given, callbacks=callbacks, **rest)
    finally:
        if hasattr(callbacks, "close"):
            callbacks.close()


def request_hidden_by_failure(
    original: Any, *given: Any, batch_at: Any = None, stop_requested: Any = lambda: False, **rest: Any
) -> Any:
    """Forget a request to stop once data have failed."""
    failed = False

    def fetched(*place: int) -> Any:
        nonlocal failed
        failed = True
        batch = batch_at(*place)
        failed = False
        return batch

    return original(*given, batch_at=fetched, stop_requested=lambda: not failed and stop_requested(), **rest)
