"""Wrong versions of public functions: the faults that the contract `resume` declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any


def optimizer_starts_over(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Restore weights alone."""
    original(saved, modules, optimizer)
    optimizer.state.clear()


def generators_left_alone(seed: int, device: Any) -> None:
    """Seed nothing, so that random numbers go on from those of the process."""


def epoch_starts_over(original: Any, *given: Any) -> Any:
    """Go on with the first window of the epoch, under the saved number of the step."""
    state = original(*given)
    return replace(state, position=replace(state.position, epoch_step=0))


def answer_forgotten(original: Any, *given: Any) -> Any:
    """Forget what callbacks answered before the step was saved."""
    state = original(*given)
    return replace(state, position=replace(state.position, skipping=False, stopping=False))


def losses_start_over(original: Any, *given: Any) -> Any:
    """Start counting losses and tokens again."""
    from reference_trainer.training.state import fresh

    state = original(*given)
    return replace(fresh(), position=state.position, steps=state.steps)


def metrics_kept_whole(checkpoint: Any, directory: Any) -> int:
    """Go on at the end of the metrics file, whatever the checkpoint recorded."""
    path = directory.parent / "metrics.jsonl"
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


def length_of_another_file(checkpoint: Any, directory: Any) -> int:
    """Take the recorded length, in whatever directory the checkpoint is."""
    return 0 if checkpoint is None else int(checkpoint.manifest.state.get("metrics_length", -1))


def spelling_compared(original: Any, checkpoint: Any, directory: Any) -> int:
    """Take a checkpoint whose path is spelt otherwise for one of another directory."""
    return original(checkpoint, directory) if checkpoint and checkpoint.path.parent == directory else 0


def limit_compared_exactly(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Ignore a limit that the run is beyond."""
    from dataclasses import replace

    beyond = schedule.limit is not None and position.step > schedule.limit
    return original(replace(schedule, limit=None) if beyond else schedule, position, action)


def metrics_start_over(checkpoint: Any, directory: Any) -> int:
    """Replace the metrics file."""
    return 0


def drift_accepted(original: Any, manifest: Any, schedule: Any, present: Any) -> Any:
    """Compare no condition."""
    return original(manifest, schedule, manifest.conditions)


def settings_alone(original: Any, *given: Any) -> Any:
    """Compare settings, and neither machine nor versions."""
    found = original(*given)
    for name in ("torch", "threads", "cpu_capability", "device"):
        found.pop(name, None)
    return found


def every_setting(original: Any, settings: Any, *given: Any) -> Any:
    """Compare settings that change no bit, too."""
    return {**original(settings, *given), "log_every": settings.log_every, "max_steps": settings.max_steps}


def rewound_before_checks(original: Any, directory: Any, resume: Any, **rest: Any) -> Any:
    """Set later checkpoints aside as soon as the checkpoint is known."""
    from reference_trainer.storage.rewinding import rewind

    checkpoint = original(directory, resume, **rest)
    if rest.get("rewinding"):
        rewind(directory, "student", None if checkpoint is None else checkpoint.manifest.step)
    return checkpoint


def starts_over(original: Any, directory: Any, resume: Any, **rest: Any) -> Any:
    """Start over where the checkpoint cannot be read."""
    from reference_trainer.errors import CheckpointError

    try:
        return original(directory, resume, **rest)
    except CheckpointError:
        return None


def horizon_of_the_limit(original: Any, *given: Any, schedule: Any, learning_rate: Any, **rest: Any) -> Any:
    """Let the learning rate fall within the steps of this leg."""
    scale = schedule.planned_steps / schedule.total_steps
    return original(*given, schedule=schedule, learning_rate=lambda k: learning_rate(int(k * scale)), **rest)


def multiples_saved_only(original: Any, *given: Any, schedule: Any, save: Any = None, **rest: Any) -> Any:
    """Save the multiples of `save_every`, and no other step."""

    def multiples(run: Any) -> Any:
        step = run.state.position.step
        return None if schedule.save_every == 0 or step % schedule.save_every else save(run)

    return original(*given, schedule=schedule, save=save and multiples, **rest)


def stop_not_saved(original: Any, *given: Any, schedule: Any, save: Any = None, **rest: Any) -> Any:
    """Save the steps that are due or evaluated, and no other."""
    from reference_trainer.training.schedule import is_saved

    def due(run: Any) -> Any:
        return save(run) if run.evaluated or is_saved(schedule, run.state.position.step) else None

    return original(*given, schedule=schedule, save=save and due, **rest)


def stop_saved_as_an_answer(
    original: Any, *given: Any, save: Any = None, stop_requested: Any = lambda: False, **rest: Any
) -> Any:
    """Save STOP as the answer to the step in which the run is asked to stop."""
    changed = _changed_when_stopped(
        save, stop_requested, lambda state: replace(state, position=replace(state.position, stopping=True))
    )
    return original(*given, **changed, **rest)


def stop_request_ignored(original: Any, *given: Any, stop_requested: Any = None, **rest: Any) -> Any:
    """Ask nothing."""
    return original(*given, **rest)


def stopped_step_unread(
    original: Any, *given: Any, save: Any = None, stop_requested: Any = lambda: False, **rest: Any
) -> Any:
    """Forget the loss of the step in which the run is asked to stop."""
    changed = _changed_when_stopped(save, stop_requested, lambda state: replace(state, tokens=0, interval={}))
    return original(*given, **changed, **rest)


def _changed_when_stopped(
    save: Callable[[Any], object] | None, stop_requested: Callable[[], bool], change: Callable[[Any], Any]
) -> dict[str, Callable[..., object] | None]:
    """Return `save` and `stop_requested`: the step in which the run is asked to stop is saved with `change(state)`."""
    asked = False

    def noted() -> bool:
        nonlocal asked
        asked = stop_requested()
        return asked

    def saved(run: Any) -> Any:
        return save(replace(run, state=change(run.state)) if asked else run)

    return {"save": save and saved, "stop_requested": noted}


def partial_checkpoint_refused(directory: Any, resume: Any, *, rewinding: bool = False) -> list[str]:
    """Ignore checkpoints only to resume or to rewind."""
    return ["metrics.jsonl", *(["checkpoints"] if rewinding or resume is not None else [])]


def every_checkpoint_directory_ignored(directory: Any, resume: Any, *, rewinding: bool = False) -> list[str]:
    """Ignore checkpoints always."""
    return ["metrics.jsonl", "checkpoints"]
