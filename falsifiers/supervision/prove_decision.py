"""Predicates over bounded boxes: what follows an attempt, and that attempts come to an end.

The subject has the public names of `supervision.decision`, and `SettingError`.
"""

from __future__ import annotations

from typing import Any

ENDINGS = ("FINISHED", "REFUSED", "FAILED")


def _made(subject: Any, reached: tuple[int, ...], ending: int) -> list[Any]:
    """Return attempts of which the last one ends so; the others failed."""
    last = len(reached) - 1
    return [
        subject.Attempt(subject.Ending[ENDINGS[ending] if k == last else "FAILED"], step)
        for k, step in enumerate(reached)
    ]


def _without_progress(before: int, reached: tuple[int, ...]) -> int:
    """Return the attempts after the last one that reached more than all before it."""
    steps = (before, *reached)
    return len(steps) - 1 - max(k for k, step in enumerate(steps) if all(step > other for other in steps[:k]))


def prove_verdict(
    subject: Any, target: int, before: int, first: int, second: int, third: int, count: int, ending: int, limits: int
) -> None:
    """The end of the run, a refusal, no progress and the retries, in this order; otherwise the run is tried again."""
    reached, (retries, idle) = (first, second, third)[:count], divmod(limits, 3)
    seen = subject.verdict(target, before, _made(subject, reached, ending), max_retries=retries, max_idle=idle + 1).name
    if ending == 0:
        wanted = "DONE" if reached[-1] >= target else "SHORT"
    elif ending == 1:
        wanted = "REFUSED"
    elif _without_progress(before, reached) >= idle + 1:
        wanted = "NO_PROGRESS"
    else:
        wanted = "RETRIES_SPENT" if count - 1 >= retries else "RETRY"
    assert seen == wanted, (
        f"{ENDINGS[ending]} at {reached} after {before}, up to {target}, with {retries} retries and {idle + 1} idle "
        f"attempts: {seen}; expected {wanted}"
    )


def prove_attempts_end(subject: Any, outcomes: int, retries: int, idle: int) -> None:
    """Whatever attempts reach, at most one more than the retries is made; one that comes to its end is the last."""
    made: list[Any] = []
    for _ in range(retries + 2):
        outcomes, step = divmod(outcomes, 5)
        ending = subject.Ending.FINISHED if step == 4 else subject.Ending.FAILED
        made.append(subject.Attempt(ending, 2 * step))
        verdict = subject.verdict(8, 0, made, max_retries=retries, max_idle=idle)
        if verdict is not subject.Verdict.RETRY:
            break
    assert len(made) <= retries + 1, f"{len(made)} attempts are made with {retries} retries"
    done = verdict is subject.Verdict.DONE
    assert done == (made[-1].ending is subject.Ending.FINISHED), f"{made} end with {verdict.name}"


def prove_limits(subject: Any, target: int, retries: int, idle: int) -> None:
    """A target or a number of idle attempts below 1, or negative retries, is refused by name."""
    target, retries, idle = target - 1, retries - 1, idle - 1
    wrong = [
        name for name, bad in (("target", target < 1), ("max_retries", retries < 0), ("max_idle", idle < 1)) if bad
    ]
    try:
        subject.verdict(target, 0, _made(subject, (1,), 2), max_retries=retries, max_idle=idle)
    except subject.SettingError as error:
        assert wrong and wrong[0] in str(error), f"refused as {error}; expected a complaint about {wrong}"
    else:
        assert not wrong, f"target {target}, {retries} retries and {idle} idle attempts are accepted"
