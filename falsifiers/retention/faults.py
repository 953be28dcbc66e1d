"""Wrong versions of public functions: the faults that the contract `retention` declares."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any


def best_dropped(original: Any, steps: Collection[int], *, keep: int, best: int | None) -> Any:
    """Keep the last ones only."""
    return original(steps, keep=keep, best=None)


def best_counts_as_one_of_the_last(original: Any, steps: Collection[int], *, keep: int, best: int | None) -> Any:
    """Make room for the best among those that are kept."""
    return original(steps, keep=keep - 1 if keep > 1 and best in steps else keep, best=best)


def newest_by_text(original: Any, wanted: str, steps: Collection[int], best: int | None) -> Any:
    """Sort steps as text, so that 9 comes after 10."""
    return max(steps, key=str) if wanted == "latest" and steps else original(wanted, steps, best)


def starts_over(original: Any, wanted: str, steps: Collection[int], best: int | None) -> Any:
    """Return step 0 where there is nothing to resume."""
    return original(wanted, steps, best) if steps else 0


def names_as_patterns(run_id: str, names: Iterable[str]) -> list[int]:
    """Take the run id for a pattern."""
    found = fnmatch.filter(names, f"{run_id}-step[0-9]*")
    return sorted(int(name.rsplit("-step", 1)[1]) for name in found if name.rsplit("-step", 1)[1].isdigit())


def nan_becomes_best(original: Any, best: Any, *, step: int, score: float, mode: str, min_delta: float) -> Any:
    """Take the first score as it is; nothing is better than NaN."""
    if best is not None and not math.isfinite(best.score):
        return best
    first = original(None, step=step, score=0.0, mode=mode, min_delta=min_delta)
    if best is None:
        return type(first)(step=step, score=score)
    return original(best, step=step, score=score, mode=mode, min_delta=min_delta)


def higher_is_always_better(original: Any, best: Any, *, mode: str, **rest: Any) -> Any:
    """Ignore the mode."""
    return original(best, mode="max" if mode == "min" else mode, **rest)


def any_gain_counts(original: Any, best: Any, *, min_delta: float, **rest: Any) -> Any:
    """Ignore `min_delta`."""
    return original(best, min_delta=0.0, **rest)


def step_saved_again(original: Any, steps: Collection[int], step: int) -> Any:
    """Accept a step that is there."""
    return original([each for each in steps if each != step], step)


def step_itself_moved(original: Any, steps: Collection[int], start: int | None) -> Any:
    """Set aside the step that the run goes on from, too."""
    return original(steps, None if start is None else start - 1)


def shorter_run_id(original: Any, name: str) -> Any:
    """Split at the first `-step`."""
    run_id, _, step = name.partition("-step")
    return (run_id, int(step)) if step.isdecimal() and step.isascii() else original(name)


def new_conditions_ignored(original: Any, saved: Mapping[str, Any], present: Mapping[str, Any]) -> Any:
    """Compare only what was saved."""
    return original(saved, {name: value for name, value in present.items() if name in saved})


def equal_numbers_of_any_type(original: Any, saved: Mapping[str, Any], present: Mapping[str, Any]) -> Any:
    """Take True for 1."""
    return [line for line in original(saved, present) if saved.get(line.split()[0]) != present.get(line.split()[0])]
