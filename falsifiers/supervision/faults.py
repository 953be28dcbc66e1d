"""Wrong versions of public functions: the faults that the contract declares."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any


def no_progress_tried_again(original: Any, *arguments: Any, max_retries: int, max_idle: int) -> Any:
    return original(*arguments, max_retries=max_retries, max_idle=10**9)


def same_error_tried_again(original: Any, target: Any, before: int, attempts: Any, **limits: Any) -> Any:
    return original(target, before, [replace(attempt, error=None) for attempt in attempts], **limits)


def every_failure_tried_again(original: Any, directory: Any) -> None:
    return None


def one_attempt_more(original: Any, *arguments: Any, max_retries: int, max_idle: int) -> Any:
    return original(*arguments, max_retries=max_retries + 1, max_idle=max_idle)


def checkpoint_is_the_end(original: Any, target: int, before: int, attempts: Any, **limits: Any) -> Any:
    from reference_trainer.supervision.decision import Ending

    last = attempts[-1]
    if last.reached >= target and last.ending is Ending.FAILED:
        attempts = [*attempts[:-1], replace(last, ending=Ending.FINISHED)]
    return original(target, before, attempts, **limits)


def all_damaged_starts_over(original: Any, out: Any, report: Any) -> int:
    from reference_trainer.errors import CheckpointError

    try:
        return int(original(out, report))
    except CheckpointError:
        for path in (out / "checkpoints").glob("student-step*"):
            path.rename(path.with_name(f"{path.name}.damaged"))
        return 0


def one_name_for_all(original: Any, settings: Any, arguments: Any, limits: Any, *, launch: Any, report: Any) -> Any:
    def launched(command: Any, beats: Any, name: str) -> Any:
        return launch(command, beats, "run")

    return original(settings, arguments, limits, launch=launched, report=report)


def any_process_with_the_number(original: Any, beat: Any) -> bool:
    import os

    try:
        os.kill(beat.pid, 0)
    except OSError:
        return False
    return True


def hung_run_stays(original: Any, self: Any, seconds: float, **options: Any) -> None:
    original(self, seconds, **{**options, "leave": False})


def watched_after_the_first_step(original: Any, self: Any, seconds: float, **options: Any) -> None:
    original(self, seconds, **options)
    for name in ("attach", "on_train_begin", "on_epoch_begin", "on_after_backward", "on_evaluate", "on_save"):
        setattr(self, name, lambda context: None)


def limit_is_the_end(original: Any, out: Any, step: int | None) -> Any:
    return original(out, step) or (step is None and (out / "manifest.json").is_file())


def believed_at_once(original: Any, out: Path, joined: str, *pause: Any) -> Any:
    from reference_trainer.supervision.machines import ANNOUNCED, Announcement, shared_directory

    read = Announcement(**json.loads((shared_directory(out) / ANNOUNCED).read_text(encoding="utf-8")))
    return original(out, joined, *pause) if read.run_id == joined else read
