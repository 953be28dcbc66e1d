"""Wrong versions of public functions: the faults that the contract declares."""

from dataclasses import replace
from typing import Any


def generators_left_alone(seed: int, device: Any) -> None:
    """Seed nothing: random numbers continue the sequence of the process."""


def epoch_starts_over(original: Any, *arguments: Any) -> Any:
    state = original(*arguments)
    return replace(state, position=replace(state.position, epoch_step=0))


def losses_start_over(original: Any, *arguments: Any) -> Any:
    from reference_trainer.training.state import initial_state

    state = original(*arguments)
    return replace(initial_state(), position=state.position, steps=state.steps)


def limit_compared_exactly(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    beyond = schedule.limit is not None and position.step > schedule.limit
    return original(replace(schedule, limit=None) if beyond else schedule, position, action)


def drift_accepted(original: Any, manifest: Any, schedule: Any, present: Any) -> Any:
    return original(manifest, schedule, manifest.conditions)


def older_refused(original: Any, manifest: Any, schedule: Any, present: Any) -> Any:
    from reference_trainer.errors import DriftError

    if present.keys() - manifest.conditions.keys() - {"init_from"}:
        raise DriftError("a setting was absent")
    return original(manifest, schedule, present)


def starts_over(original: Any, directory: Any, resume: Any, **rest: Any) -> Any:
    from reference_trainer.errors import CheckpointError

    try:
        return original(directory, resume, **rest)
    except CheckpointError:
        return None


def multiples_saved_only(original: Any, *arguments: Any, schedule: Any, services: Any = None, **rest: Any) -> Any:
    def multiples(run: Any) -> Any:
        step = run.state.position.step
        return None if schedule.save_every == 0 or step % schedule.save_every else services.save(run)

    return original(*arguments, schedule=schedule, services=replace(services, save=multiples), **rest)


def stop_request_ignored(original: Any, *arguments: Any, services: Any = None, **rest: Any) -> Any:
    return original(*arguments, services=replace(services, stop_requested=lambda: False), **rest)
