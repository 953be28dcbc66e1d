"""Claims about callbacks: stops and events."""

from collections.abc import Sequence
from itertools import product

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import Cell, Cells, judge, require, require_steps
from pv.suites.training_loop.run import Run


def falsify_stop_after_a_step(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, k in product((1, 2), (1, 2, 3)):
        run = bench.run(job(equal(8), epochs=2, accumulate=accumulate, stop_at=k))
        why = f"asked to stop after step {k}, it takes {len(run.steps)} steps" if len(run.steps) != k else ""
        cells[f"accumulation {accumulate}, step {k}"] = Cell(run, why, _of_stop(run, k) if why else ())
    judge(cells)


def _of_stop(run: Run, k: int) -> tuple[str, ...]:
    """Return the known mistakes by which a run that is asked to stop after step k has so many steps."""
    found, epoch = len(run.steps), len(run.job.train) // (run.job.batch * run.job.accumulate)
    known = {
        "a stop that takes effect when the epoch ends": found == -(-k // epoch) * epoch,
        "a stop one step late": found == k + 1,
        "a run that does not stop": found == epoch * run.job.epochs,
        "a stop that counts micro-batches": found == -(-k // run.job.accumulate),
    }
    return tuple(name for name, holds in known.items() if holds)


def falsify_epoch_events(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, batch in product((1, 2, 3), (1, 2)):
        run = bench.run(job(equal(7), epochs=2, accumulate=accumulate, batch=batch))
        require(run.events, "`events`", "where the loop has no callbacks, name `events` as missing in `features`")
        found = [event for event in run.events if not event.startswith("step_")]
        outer = [event for event in found if event.startswith(("train_", "epoch_"))]
        right = ["train_begin", *["epoch_begin", "epoch_end"] * 2, "train_end"]
        ends = found[:1] == right[:1] and found[-1:] == right[-1:]
        why = (
            ""
            if outer == right and ends
            else f"events {found}; of runs and epochs {right} are expected, first and last"
        )
        cells[f"accumulation {accumulate}, batch {batch}"] = Cell(run, why, _miscalled(outer, right) if why else ())
    judge(cells)
    require_steps(*(cell.run for cell in cells.values()))


def _miscalled(found: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
    """Return which events are called too rarely or too often, or that their order is another one."""
    times = {each: (found.count(each), right.count(each)) for each in dict.fromkeys((*right, *found))}
    wrong = [f"`{each}` called {n} times, not {wanted}" for each, (n, wanted) in times.items() if n != wanted]
    return tuple(wrong) or ("the right events in another order",)


def falsify_step_events(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, batch in product((1, 2, 3), (1, 2)):
        run = bench.run(job(equal(7), epochs=2, accumulate=accumulate, batch=batch))
        require(run.events, "`events`", "where the loop has no callbacks, name `events` as missing in `features`")
        found = [event for event in run.events if event.startswith(("step_", "epoch_"))]
        half = len(run.steps) // 2
        right = ["epoch_begin", *["step_begin", "step_end"] * half, "epoch_end"] * 2
        why = f"{len(run.steps)} steps, and the events {found}, not {right}" if found != right else ""
        cells[f"accumulation {accumulate}, batch {batch}"] = Cell(run, why, _miscalled(found, right) if why else ())
    judge(cells)
    require_steps(*(cell.run for cell in cells.values()))
