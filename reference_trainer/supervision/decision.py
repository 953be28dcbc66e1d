"""Whether a supervised run is done, tried again or given up: a pure function of what its attempts reached.

Nothing here reads a file or imports torch. Steps count from 1; 0 is a run without a checkpoint.

How far a run has come: the newest of its checkpoints that is whole, or its model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path

from reference_trainer.config.settings import Settings
from reference_trainer.errors import CheckpointError, DriftError, ModelFileError, OutputError, SettingError
from reference_trainer.pipeline.checkpointing import CHECKPOINTS, RUN_ID, fixed_settings
from reference_trainer.pipeline.custom_class import with_default_rate
from reference_trainer.storage.checkpoints import check_files, read_manifest
from reference_trainer.storage.export import MANIFEST, verify_manifest
from reference_trainer.storage.retention import checkpoint_name, differences, steps_of


def whole_step(out: Path, report: Callable[[str], object]) -> int:
    """Return the step of the newest whole checkpoint; 0 if there is none.

    Damaged ones are renamed to `NAME.damaged`, so that the run resumes from the one before. Raise `CheckpointError` if
    all are damaged: the run would start over.
    """
    directory = out / CHECKPOINTS
    while steps := _steps(directory):
        path = directory / checkpoint_name(RUN_ID, steps[-1])
        try:
            check_files(path, read_manifest(path))
            return steps[-1]
        except CheckpointError as error:
            if len(steps) == 1:
                raise CheckpointError(
                    f"no whole checkpoint is left: {error}; move {directory} away to start over"
                ) from error
            report(f"renamed to {_set_aside(path).name}: {error}")
    return 0


def _steps(directory: Path) -> list[int]:
    """Return the steps of all directories with the name of a checkpoint, also of those that have no manifest."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error
    return steps_of(RUN_ID, names)


def _set_aside(path: Path) -> Path:
    aside, number = path.with_name(f"{path.name}.damaged"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged{number}")
    try:
        return path.rename(aside)
    except OSError as error:
        raise OutputError(f"cannot rename {path}: {error.strerror}") from error


def model_step(out: Path) -> int:
    """Return the steps of the run whose model is in `out`; 0 if there is none."""
    try:
        read = json.loads((out / MANIFEST).read_bytes())
        if "sha256" in read:  # own parts may write none
            verify_manifest(out)
        return int(read["result"]["steps_completed"])
    except (ModelFileError, OSError, ValueError, KeyError, TypeError):
        return 0


def is_done(out: Path, step: int | None) -> bool:
    """Return whether `out` has the model of a run that took `step` steps, or of one that came to its planned end."""
    taken = model_step(out)
    if step is not None or not taken:
        return step is not None and taken >= step
    limit = json.loads((out / MANIFEST).read_bytes()).get("settings", {}).get("max_steps")
    return limit is None or taken < limit  # it ended before its limit, so by its plan


def check_model(out: Path, settings: Settings) -> None:
    """Raise `DriftError`, with both values, if the run whose model is in `out` had other settings."""
    saved = json.loads((out / MANIFEST).read_bytes()).get("settings", {})
    present = {name: value for name, value in fixed_settings(with_default_rate(settings)).items() if name in saved}
    if changed := differences({name: saved[name] for name in present}, present):
        raise DriftError(f"{out} has the model of another run: {'; '.join(changed)}; choose another --out")


class Ending(Enum):
    """How an attempt ended."""

    FINISHED = "finished"
    """The run came to its end, and its model is written."""
    REFUSED = "refused"
    """A setting was refused, which no other attempt changes."""
    FAILED = "failed"
    """It failed, was killed, or did not answer any more."""


class Verdict(IntEnum):
    """What follows an attempt. Each value but that of RETRY is the exit code of the supervisor."""

    RETRY = -1
    DONE = 0
    REFUSED = 2
    NO_PROGRESS = 3
    RETRIES_SPENT = 4
    SHORT = 5
    """The run came to its end before the step that was asked for."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """reached: the step of the model of a finished attempt, of the newest whole checkpoint after any other one."""

    ending: Ending
    reached: int


def idle(before: int, attempts: Sequence[Attempt]) -> int:
    """Return how many attempts in a row, up to the last, reached no further step; `before`: before the first."""
    count, furthest = 0, before
    for attempt in attempts:
        count = 0 if attempt.reached > furthest else count + 1
        furthest = max(furthest, attempt.reached)
    return count


def verdict(
    target: int | None, before: int, attempts: Sequence[Attempt], *, max_retries: int, max_idle: int
) -> Verdict:
    """Return what follows the last of `attempts`.

    A run that came to its end is done if it reached the step `target`, or if that is None. Any other one is tried
    again, at most `max_retries` times, unless `max_idle` attempts in a row reached no further step. An attempt that
    ends before its first checkpoint is such a one. Raise `SettingError` for numbers out of their domain.
    """
    for name, value, least in (("target", target, 1), ("max_retries", max_retries, 0), ("max_idle", max_idle, 1)):
        if value is not None and value < least:
            raise SettingError(f"invalid value {value} for {name!r}: expected at least {least}")
    last = attempts[-1]
    if last.ending is Ending.FINISHED:
        return Verdict.DONE if target is None or last.reached >= target else Verdict.SHORT
    if last.ending is Ending.REFUSED:
        return Verdict.REFUSED
    if idle(before, attempts) >= max_idle:
        return Verdict.NO_PROGRESS
    return Verdict.RETRIES_SPENT if len(attempts) > max_retries else Verdict.RETRY
