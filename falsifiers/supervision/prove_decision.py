"""Predicates over bounded boxes: what follows an attempt, and which limits are refused."""

from typing import Any

ENDINGS = ("FINISHED", "REFUSED", "FAILED")


def _attempts(subject: Any, reached: tuple[int, ...], ending: int) -> list[Any]:
    """Return attempts; the last one ends as `ending` says, the others failed."""
    endings = ["FAILED"] * (len(reached) - 1) + [ENDINGS[ending]]
    return [subject.Attempt(subject.Ending[name], step) for name, step in zip(endings, reached, strict=True)]


def _without_progress(before: int, reached: tuple[int, ...]) -> int:
    """Return the attempts after the last one that reached more than all before it."""
    steps = (before, *reached)
    return len(steps) - 1 - max(k for k, step in enumerate(steps) if all(step > earlier for earlier in steps[:k]))


def prove_verdict(
    subject: Any, target: int, before: int, first: int, second: int, third: int, count: int, ending: int, limits: int
) -> None:
    """The end of the run, a refusal, no progress and the retries, in this order; otherwise the run is tried again."""
    reached, (retries, idle) = (first, second, third)[:count], divmod(limits, 3)
    attempts = _attempts(subject, reached, ending)
    seen = subject.verdict(target, before, attempts, max_retries=retries, max_idle=idle + 1).name
    if ending == 0:
        wanted = "DONE" if reached[-1] >= target else "SHORT"
    elif ending == 1:
        wanted = "REFUSED"
    elif _without_progress(before, reached) >= idle + 1:
        wanted = "NO_PROGRESS"
    else:
        wanted = "RETRIES_SPENT" if count - 1 >= retries else "RETRY"
    assert seen == wanted, f"{ENDINGS[ending]} at {reached} after {before}, up to {target}: {seen}; expected {wanted}"


def prove_repeated_error(subject: Any, first: int, second: int, third: int, count: int) -> None:
    """Attempts that all progress are given up once two in a row have the same error after the same step.

    first, second, third: 0 for no reported error; 1 to 4 for errors that differ in type, message or step.
    """
    errors = (None, ("A", "x", 7), ("B", "x", 7), ("A", "y", 7), ("A", "x", 8))
    chosen = [errors[number] for number in (first, second, third)[:count]]
    attempts = [subject.Attempt(subject.Ending.FAILED, step, error) for step, error in enumerate(chosen, start=1)]
    seen = subject.verdict(9, 0, attempts, max_retries=9, max_idle=9).name
    wanted = "NO_PROGRESS" if count > 1 and chosen[-1] is not None and chosen[-1] == chosen[-2] else "RETRY"
    assert seen == wanted, f"after the errors {chosen}: {seen}; expected {wanted}"


def prove_limits(subject: Any, target: int, retries: int, idle: int) -> None:
    """A target or a number of idle attempts below 1, or negative retries, is refused by name."""
    target, retries, idle = target - 1, retries - 1, idle - 1
    limits = {"target": target < 1, "max_retries": retries < 0, "max_idle": idle < 1}
    wrong = [name for name, is_wrong in limits.items() if is_wrong]
    try:
        subject.verdict(target, 0, _attempts(subject, (1,), 2), max_retries=retries, max_idle=idle)
    except subject.SettingError as error:
        assert wrong and wrong[0] in str(error), f"refused as {error}; expected a complaint about {wrong}"
    else:
        assert not wrong, f"target {target}, {retries} retries and {idle} idle attempts are accepted"
