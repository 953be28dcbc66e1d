"""Wrong versions of public functions: the faults that the contract declares."""

import fnmatch
import math
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any


def best_dropped(original: Any, steps: Collection[int], *, keep: int, best: int | None) -> Any:
    return original(steps, keep=keep, best=None)


def starts_over(original: Any, wanted: str, steps: Collection[int], best: int | None) -> Any:
    return original(wanted, steps, best) if steps else 0


def names_as_patterns(run_id: str, names: Iterable[str]) -> list[int]:
    endings = [name.rsplit("-step", 1)[1] for name in fnmatch.filter(names, f"{run_id}-step[0-9]*")]
    return sorted(int(ending) for ending in endings if ending.isdigit())


def nan_becomes_best(original: Any, best: Any, *, step: int, score: float, mode: str, min_delta: float) -> Any:
    if best is not None and not math.isfinite(best.score):
        return best
    first = original(None, step=step, score=0.0, mode=mode, min_delta=min_delta)
    if best is None:
        return type(first)(step=step, score=score)
    return original(best, step=step, score=score, mode=mode, min_delta=min_delta)


def higher_is_always_better(original: Any, best: Any, *, mode: str, **rest: Any) -> Any:
    return original(best, mode="max" if mode == "min" else mode, **rest)


def later_ones_removed(original: Any, *arguments: Any, **rest: Any) -> Any:
    aside = original(*arguments, **rest)
    if aside is not None:
        shutil.rmtree(aside)
    return aside


def nothing_set_aside(directory: Path, run_id: str, start: int | None, **rest: Any) -> Path:
    return directory
