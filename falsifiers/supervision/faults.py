"""Wrong versions of public functions: the faults that the contract `supervision` declares."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any


def exit_code_trusted(original: Any, target: int, *given: Any, **limits: Any) -> Any:
    """Take a run that came to its end for one that reached the step."""
    return original(1, *given, **limits) if given[1][-1].reached else original(target, *given, **limits)


def no_progress_tried_again(original: Any, *given: Any, max_retries: int, max_idle: int) -> Any:
    """Try again whatever was reached."""
    return original(*given, max_retries=max_retries, max_idle=10**9)


def one_attempt_more(original: Any, *given: Any, max_retries: int, max_idle: int) -> Any:
    """Make one attempt more than there are retries."""
    return original(*given, max_retries=max_retries + 1, max_idle=max_idle)


def checkpoint_is_the_end(original: Any, target: int, before: int, attempts: Any, **limits: Any) -> Any:
    """Take a checkpoint of the step for the end of the run, whose model is missing."""
    from reference_trainer.supervision.decision import Ending

    last = attempts[-1]
    if last.reached >= target and last.ending is Ending.FAILED:
        attempts = [*attempts[:-1], replace(last, ending=Ending.FINISHED)]
    return original(target, before, attempts, **limits)


def refusal_tried_again(original: Any, target: int, before: int, attempts: Any, **limits: Any) -> Any:
    """Try a refused setting again."""
    from reference_trainer.supervision.decision import Ending

    failed = [replace(each, ending=Ending.FAILED) if each.ending is Ending.REFUSED else each for each in attempts]
    return original(target, before, failed, **limits)


def last_attempt_compared(original: Any, target: int, before: int, attempts: Any, **limits: Any) -> Any:
    """Compare with the attempt before alone, so that a run that falls back and catches up makes progress."""
    earlier = attempts[-2].reached if len(attempts) > 1 else before
    kept = original(target, before, attempts, **limits)
    return type(kept).RETRY if kept.name == "NO_PROGRESS" and attempts[-1].reached > earlier else kept


def first_checkpoint_awaited(original: Any, target: int, before: int, attempts: Any, **limits: Any) -> Any:
    """Count no attempt that ends before the first checkpoint."""
    reached = [each for k, each in enumerate(attempts) if each.reached or k == len(attempts) - 1]
    return original(target, before - (before == 0), reached, **limits)


def any_model_is_the_end(out: Any, settings: Any) -> None:
    """Take every model for that of the run."""


def newest_believed(out: Any, report: Any) -> int:
    """Take the newest checkpoint for whole."""
    from reference_trainer.storage.checkpoint_files import saved_steps

    return max(saved_steps(out / "checkpoints", "student"), default=0)


def damaged_removed(original: Any, out: Any, report: Any) -> int:
    """Remove damaged checkpoints."""
    step = int(original(out, report))
    for path in (out / "checkpoints").glob("*.damaged*"):
        shutil.rmtree(path)
    return step


def all_damaged_starts_over(original: Any, out: Any, report: Any) -> int:
    """Start over where no checkpoint is whole."""
    from reference_trainer.errors import CheckpointError

    try:
        return int(original(out, report))
    except CheckpointError:
        for path in (out / "checkpoints").glob("student-step*"):
            path.rename(path.with_name(f"{path.name}.damaged"))
        return 0


def resumed_always(original: Any, settings: Any, arguments: Any, limits: Any, *, launch: Any, report: Any) -> Any:
    """Resume also where there is no checkpoint."""

    def launched(command: Any, beats: Any, name: str) -> Any:
        more = [] if "--resume" in command else ["--resume", "latest"]
        return launch([*command, *more], beats, name)

    return original(settings, arguments, limits, launch=launched, report=report)


def one_name_for_all(original: Any, settings: Any, arguments: Any, limits: Any, *, launch: Any, report: Any) -> Any:
    """Give every attempt the same name, and so the addresses of the last one."""

    def launched(command: Any, beats: Any, name: str) -> Any:
        return launch(command, beats, "run")

    return original(settings, arguments, limits, launch=launched, report=report)


def older_models_are_done(original: Any, settings: Any, arguments: Any, limits: Any, **rest: Any) -> Any:
    """Take the model of a shorter run for the end of this one."""
    from reference_trainer.supervision.progress import model_step

    step = model_step(settings.out)
    return original(settings, arguments, replace(limits, step=min(limits.step, step or limits.step)), **rest)


def age_of_the_file(original: Any, read: Any, now: float, after: float) -> Any:
    """Wait for half of the time."""
    return original(read, now, after / 2)


def any_process_with_the_number(original: Any, beat: Any) -> bool:
    """Take whatever process has the number of a rank for that rank."""
    import os

    try:
        os.kill(beat.pid, 0)
    except OSError:
        return False
    return True


def ten_ranks_watched(original: Any, directory: Any) -> Any:
    """Read the beats of ranks with one digit."""
    with tempfile.TemporaryDirectory() as name:
        for path in directory.glob("rank-?.json"):
            shutil.copy(path, name)
        return original(Path(name))


def checkpoint_for_a_model(original: Any, out: Any) -> int:
    """Take the newest checkpoint for the model."""
    from reference_trainer.supervision.progress import whole_step

    return max(original(out), whole_step(out, lambda line: None))


def hung_run_stays(original: Any, self: Any, seconds: float, **others: Any) -> None:
    """Write the stacks of a process that hangs, and let it be."""
    original(self, seconds, **{**others, "leave": False})


def teacher_not_watched(original: Any, *given: Any, **named: Any) -> Any:
    """Train a teacher without the callbacks that it is given first."""
    settings, rows, steps, callbacks, wrap = given
    return original(settings, rows, steps, callbacks[1:], wrap, **named)
