"""Decide whether a supervised run is done, needs another attempt or is given up, from the results of its attempts.

This module reads no file and imports no torch. Steps count from 1; a run without a checkpoint has reached step 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from reference_trainer.errors import SettingError


class Ending(Enum):
    """The kind of ending of an attempt."""

    FINISHED = "finished"
    """The run came to its end, and its model is written."""
    REFUSED = "refused"
    """A setting or the input was refused; another attempt would be refused too."""
    FAILED = "failed"
    """The attempt failed, was killed, or stopped responding."""


class Verdict(IntEnum):
    """The decision after an attempt. Every value except RETRY is the exit code of the supervisor."""

    RETRY = -1
    DONE = 0
    REFUSED = 2
    NO_PROGRESS = 3
    RETRIES_SPENT = 4
    SHORT = 5
    """The run came to its end before the requested step."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of an attempt.

    Attributes:
        ending: The kind of ending.
        reached: The step of the model if the attempt finished, else the step of the newest undamaged checkpoint.
        error: The type, the message and the step of the error that ended the attempt; None if no error was reported,
            for example after a kill.
    """

    ending: Ending
    reached: int
    error: tuple[str, str, int] | None = None


def is_repeated(attempts: Sequence[Attempt]) -> bool:
    """Return whether the last two attempts ended after the same step with the same error."""
    return len(attempts) > 1 and attempts[-1].error is not None and attempts[-1].error == attempts[-2].error


def count_idle(before: int, attempts: Sequence[Attempt]) -> int:
    """Return the number of attempts in a row, up to the last attempt, that reached no further step.

    Args:
        before: The step of the newest undamaged checkpoint before the first attempt.
        attempts: The attempts so far.
    """
    count, furthest = 0, before
    for attempt in attempts:
        count = 0 if attempt.reached > furthest else count + 1
        furthest = max(furthest, attempt.reached)
    return count


def verdict(
    target: int | None, before: int, attempts: Sequence[Attempt], *, max_retries: int, max_idle: int
) -> Verdict:
    """Return the decision after the last of `attempts`.

    A run that came to its end is done if it reached the step `target`, or if `target` is None. A refused run is given
    up. A failed run gets at most `max_retries` further attempts. It is given up earlier if `max_idle` attempts in a row
    reached no further step, or if two attempts in a row ended after the same step with the same error. An attempt that
    ends before it saves a checkpoint has reached no further step.

    Args:
        target: The step to reach; None for the planned end.
        before: The step of the newest undamaged checkpoint before the first attempt.
        attempts: The attempts so far, at least one.
        max_retries: The largest number of attempts after the first one, >= 0.
        max_idle: The run is given up after this number of attempts in a row without a further step, >= 1.

    Raises:
        SettingError: A number is out of its domain.
    """
    for name, value, least in (("target", target, 1), ("max_retries", max_retries, 0), ("max_idle", max_idle, 1)):
        if value is not None and value < least:
            raise SettingError(f"invalid value {value} for {name!r}: expected at least {least}")
    last = attempts[-1]
    if last.ending is Ending.FINISHED:
        return Verdict.DONE if target is None or last.reached >= target else Verdict.SHORT
    if last.ending is Ending.REFUSED:
        return Verdict.REFUSED
    if count_idle(before, attempts) >= max_idle or is_repeated(attempts):
        return Verdict.NO_PROGRESS
    return Verdict.RETRIES_SPENT if len(attempts) > max_retries else Verdict.RETRY
