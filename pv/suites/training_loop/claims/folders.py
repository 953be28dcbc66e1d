"""Claims about runs in a folder that holds checkpoints of an earlier run, and about runs that are prolonged."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import saved_job
from pv.suites.training_loop.claims.checkpoints import due, on_disk
from pv.suites.training_loop.claims.checks import Cell, Cells, judge
from pv.suites.training_loop.claims.resume import order_fault
from pv.suites.training_loop.diagnosis import different_end
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.run import Run


def _in_used_folder(bench: Bench, earlier: Run, job: Job) -> Run | None:
    """Return the run of a job in the folder of an earlier one; None if the trainer refuses the folder."""
    try:
        return bench.run_after(earlier, job)
    except SkipTest:
        raise
    except (Exception, SystemExit):  # whatever a trainer raises for a folder that is not empty
        return None


def falsify_rotation_beside_an_earlier_run(bench: Bench) -> None:
    cells: Cells = {}
    earlier = bench.run(saved_job(keep=2, epochs=3))
    for keep in (1, 2):
        alone = bench.run(saved_job(keep=keep, epochs=1))
        wanted = due(bench, alone)[-keep:]
        if not wanted or {*wanted} & {*on_disk(earlier)}:  # they could not be told from those of the earlier run
            continue
        run = _in_used_folder(bench, earlier, saved_job(keep=keep, epochs=1))
        lost = [step for step in wanted if run is not None and step not in on_disk(run)]
        names = f"{', '.join(map(str, lost))} of this run"
        fault = f"after it, the folder has the steps {on_disk(run or alone)}, and not {names}" if lost else ""
        of_earlier = bool(lost) and {*on_disk(run or alone)} >= {*on_disk(earlier)}
        causes = ("a rotation that keeps the checkpoints with the largest steps, those of the earlier run",)
        cells[f"keep {keep}, in the folder of a run with the steps {on_disk(earlier)}"] = Cell(
            run or alone, fault, causes if of_earlier else ()
        )
    judge(cells)


def falsify_newest_beside_an_earlier_run(bench: Bench) -> None:
    newest = cast("Callable[[Path], Path | None]", cast("Any", bench.trainer).newest)
    earlier, job = bench.run(saved_job()), saved_job(epochs=1, seed=2)
    run = _in_used_folder(bench, earlier, job)
    if run is None:
        return
    judge({"in the folder of an earlier, longer run": _newest_cell(bench, run, newest)})


def _newest_cell(bench: Bench, run: Run, newest: Callable[[Path], Path | None]) -> Cell:
    """Return whether the checkpoint that the trainer calls the newest is that of the end of the run."""
    place = Path(shutil.copytree(run.job.directory, Path(tempfile.mkdtemp(dir=bench.directory)) / "run", symlinks=True))
    path = newest(place)
    if path is None:
        return Cell(run, "no checkpoint is found")
    again = bench.resume_run(run, place, path, save_every=0)
    differing = different_end(again, run, len(run.steps))
    fault = f"the newest checkpoint is {path.name}: a run that goes on from it ends with other weights, {differing}"
    causes = ("a checkpoint of the earlier run, whose step is larger",) if not again.steps else ()
    return Cell(again, fault, causes) if differing else Cell(again)


def falsify_finished_run_with_another_epoch(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate in (1, 2):
        straight, longer = (bench.run(saved_job(accumulate=accumulate, epochs=epochs)) for epochs in (2, 3))
        if longer.order[: len(straight.steps)] != straight.order:
            raise SkipTest("the orders of the first epochs depend on how many epochs a run has")
        cells[f"accumulation {accumulate}, 2 epochs and then another"] = _prolonged_cell(bench, straight, longer)
    judge(cells)


def _prolonged_cell(bench: Bench, straight: Run, longer: Run) -> Cell:
    """Return whether a finished run that is resumed for as many epochs as another one has its remaining examples."""
    try:
        again = bench.resume(straight, len(straight.steps), epochs=longer.job.epochs)
    except SkipTest:
        raise
    except (Exception, SystemExit):  # whatever a trainer raises that prolongs no run
        return Cell(straight)
    fault, causes = order_fault(longer, again, len(straight.steps), slice(None), 0)
    if fault and not again.steps:
        fault, causes = "no step is taken", ("an epoch that is counted when the run ends, and not trained",)
    return Cell(again, fault, causes)
