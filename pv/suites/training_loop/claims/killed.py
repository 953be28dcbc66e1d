"""Claims about runs that are killed during a save."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import saved_job, unequal
from pv.suites.training_loop.claims.checkpoints import epochs
from pv.suites.training_loop.claims.checks import Cell, Cells, judge
from pv.suites.training_loop.claims.resume import same_end
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.run import Run

PARTLY = "a checkpoint that is written in place: it is there before it is complete"


def _job(bench: Bench) -> Job:
    """Return a job with two checkpoints: where the second is saved, the first is complete."""
    return saved_job(**{"train": unequal(4), "epochs": 1, "dropout": 0.0} | epochs(bench, 2))


def kills(bench: Bench, straight: Run) -> Iterator[tuple[int, Path, dict[int, Path]]]:
    """Yield each operation on files, the directory of a run that was killed at it, and its checkpoints by step."""
    for operation in count():
        place = bench.kill(straight, operation)
        if place is None:
            return
        paths = {k: place / path.relative_to(straight.job.directory) for k, path in straight.checkpoints.items()}
        yield operation + 1, place, {k: path for k, path in paths.items() if path.exists()}


def falsify_kill_during_a_save(bench: Bench) -> None:
    straight, cells = bench.run(_job(bench)), Cells()
    left: tuple[Path, dict[int, Path]] = (Path(), {})
    refused: list[str] = []
    for operation, place, saved in kills(bench, straight):
        if saved:
            left = max(left, (place, saved), key=lambda each: len(each[1]))
            name = f"killed at operation {operation} on files, resumed from step {max(saved)}"
            cells[name] = _after_kill(bench, straight, place, max(saved), saved[max(saved)], refused)
    judge(cells)
    if len(refused) == len(cells):
        _require_older(bench, straight, *left)


def _require_older(bench: Bench, straight: Run, place: Path, saved: dict[int, Path]) -> None:
    """Raise SkipTest if the oldest checkpoint that a killed run has left, which is complete, is refused, too."""
    try:
        bench.resume_run(straight, place, saved[min(saved)])
    except Exception as error:  # whatever a trainer raises for a directory, or a checkpoint, that it does not take
        why = f"{type(error).__name__}: {error}"[:200]
        raise SkipTest(f"every checkpoint of a killed run is refused, also the oldest: {why}") from error


def _after_kill(bench: Bench, straight: Run, place: Path, k: int, saved: Path, refused: list[str]) -> Cell:
    """Return how the run ends that goes on from the newest checkpoint of a killed one, which it may refuse.

    refused: gets what is raised then.
    """
    try:
        again = bench.resume_run(straight, place, saved)
    except Exception as error:  # whatever a trainer raises for a checkpoint that is not complete
        refused.append(f"{type(error).__name__}: {error}")
        return Cell(straight)
    fault = same_end(straight, again, k)
    return Cell(again, fault, (PARTLY,) if fault else ())


def falsify_killed_run_goes_on(bench: Bench) -> None:
    newest = cast("Callable[[Path], Path | None]", cast("Any", bench.trainer).newest)
    straight, cells = bench.run(_job(bench)), Cells()
    for operation, place, saved in kills(bench, straight):
        name = f"killed at operation {operation} on files, with checkpoints of the steps {sorted(saved)}"
        if (path := newest(place)) is not None:
            cells[name] = _from_newest(bench, straight, place, path)
        elif len(saved) > 1:
            cells[name] = Cell(straight, "no checkpoint is found, and at least the first is complete")
    judge(cells)


def _from_newest(bench: Bench, straight: Run, place: Path, path: Path) -> Cell:
    """Return how the run ends that goes on from the checkpoint that the trainer calls the newest."""
    try:
        again = bench.resume_run(straight, place, path, save_every=0)
    except Exception as error:  # whatever a trainer raises for a checkpoint that is not complete
        why = f"the newest checkpoint is {path.name}, which cannot be loaded: {type(error).__name__}: {error}"
        return Cell(straight, why[:300], (PARTLY,))
    fault = same_end(straight, again, len(straight.steps) - len(again.steps))
    return Cell(again, fault, (PARTLY,) if fault else ())
