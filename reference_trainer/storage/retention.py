"""Decide which checkpoints to keep, remove and resume: pure functions of names and step numbers.

Nothing here reads a file or imports torch. Steps count from 1; step 0 is the untrained student.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reference_trainer.errors import CheckpointError

MODES = ("min", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The step with the best score of a run so far."""

    step: int
    score: float


def checked_run_id(run_id: str) -> str:
    """Return the run id. Raise `CheckpointError` if it is empty, starts with a dot, or contains `/` or NUL."""
    if not run_id or run_id.startswith(".") or "/" in run_id or "\0" in run_id:
        raise CheckpointError(f"invalid run id {run_id!r}: expected a file name that does not start with a dot")
    return run_id


def checkpoint_name(run_id: str, step: int) -> str:
    """Return the name of the directory of a checkpoint."""
    return f"{checked_run_id(run_id)}-step{step}"


def parse_name(name: str) -> tuple[str, int] | None:
    """Return the run id and the step in the name of a checkpoint; None for any other name."""
    # No leading zeros, so that a step has one name. The number of digits is bounded, so that a step fits into 64 bits.
    match = re.fullmatch(r"([^./\0][^/\0]*)-step(0|[1-9][0-9]{0,17})", name)
    return None if match is None else (match[1], int(match[2]))


def steps_of(run_id: str, names: Iterable[str]) -> list[int]:
    """Return the sorted steps of the checkpoints of a run among `names`. Other names are ignored."""
    checked_id = checked_run_id(run_id)
    return sorted(parsed[1] for parsed in map(parse_name, names) if parsed is not None and parsed[0] == checked_id)


def check_follows(steps: Collection[int], step: int) -> None:
    """Raise `CheckpointError` if `step` or a later step is saved already.

    The existing checkpoint of that step would be taken for the latest checkpoint of the resumed run.
    """
    if steps and step <= max(steps):
        raise CheckpointError(
            f"cannot go on from step {step - 1}, because step {max(steps)} is saved too; resume from the latest, or "
            "add --rewind, which sets the later checkpoints aside"
        )


def steps_to_set_aside(steps: Collection[int], start: int | None) -> list[int]:
    """Return the steps to set aside when a run resumes from step `start`, newest first.

    These are the steps after `start`, or all steps if `start` is None.
    """
    # Newest first, so that after an interrupted rewind no earlier step is missing.
    return sorted((step for step in steps if start is None or step > start), reverse=True)


def steps_to_remove(steps: Collection[int], *, keep: int, best: int | None) -> list[int]:
    """Return the steps whose checkpoints to remove: all except the last `keep` and the best.

    Args:
        steps: The saved steps.
        keep: Number of steps to keep; 0 keeps all.
        best: The best step, which is kept in addition; None if there is none.
    """
    if keep == 0:
        return []
    return [step for step in sorted(steps)[: -max(keep, 1)] if step != best]


def update_best(best: Best | None, *, step: int, score: float, mode: str, min_delta: float) -> Best | None:
    """Return the new best step: `step` if its score is better than `best` by more than `min_delta`, else `best`.

    The first finite score becomes the best. A score that is not finite never does.

    Args:
        best: The best step so far; None before the first.
        step: The step with the new score.
        score: The new score.
        mode: "min" or "max", the better direction of the score.
        min_delta: The smallest gain, exclusive, in the unit of the score.

    Raises:
        CheckpointError: `mode` is neither "min" nor "max".
    """
    if mode not in MODES:
        raise CheckpointError(f"invalid mode {mode!r}: expected one of {', '.join(MODES)}")
    gain = math.inf if best is None else best.score - score if mode == "min" else score - best.score
    return Best(step=step, score=score) if math.isfinite(score) and gain > min_delta else best


def step_to_resume(wanted: str, steps: Collection[int], best: int | None) -> int:
    """Return the step to resume from: the "latest" or the "best" of `steps`.

    Raise `CheckpointError` if there is none.
    """
    if not steps:
        raise CheckpointError("no checkpoint to resume; start without --resume")
    if wanted == "latest":
        return max(steps)
    if wanted != "best" or best is None or best not in steps:
        raise CheckpointError(f"no {wanted} checkpoint to resume (saved steps: {sorted(steps)})")
    return best


def differences(saved: Mapping[str, object], present: Mapping[str, object]) -> list[str]:
    """Return a line for every value that has changed since the save, sorted by name, with both values as JSON."""
    before, now = (
        {name: json.dumps(value, sort_keys=True) for name, value in values.items()} for values in (saved, present)
    )
    changed = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    return [f"{name} was {before.get(name, 'absent')} and is {now.get(name, 'absent')}" for name in changed]
