"""Claims about callbacks: stops and events."""

from itertools import product

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import Cell, Cells, judge


def falsify_stop_after_a_step(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, k in product((1, 2), (1, 2, 3)):
        run = bench.run(job(equal(8), epochs=2, accumulate=accumulate, stop_at=k))
        why = f"asked to stop after step {k}, it takes {len(run.steps)} steps" if len(run.steps) != k else ""
        cells[f"accumulation {accumulate}, step {k}"] = Cell(run, why)
    judge(cells)


def falsify_epoch_events(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, batch in product((1, 2, 3), (1, 2)):
        run = bench.run(job(equal(7), epochs=2, accumulate=accumulate, batch=batch))
        found = [event for event in run.events if not event.startswith("step_")]
        outer = [event for event in found if event.startswith(("train_", "epoch_"))]
        right = ["train_begin", *["epoch_begin", "epoch_end"] * 2, "train_end"]
        ends = found[:1] == right[:1] and found[-1:] == right[-1:]
        why = (
            ""
            if outer == right and ends
            else f"events {found}; of runs and epochs {right} are expected, first and last"
        )
        cells[f"accumulation {accumulate}, batch {batch}"] = Cell(run, why)
    judge(cells)


def falsify_step_events(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, batch in product((1, 2, 3), (1, 2)):
        run = bench.run(job(equal(7), epochs=2, accumulate=accumulate, batch=batch))
        found = [event for event in run.events if event.startswith(("step_", "epoch_"))]
        half = len(run.steps) // 2
        right = ["epoch_begin", *["step_begin", "step_end"] * half, "epoch_end"] * 2
        why = f"{len(run.steps)} steps, and the events {found}, not {right}" if found != right else ""
        cells[f"accumulation {accumulate}, batch {batch}"] = Cell(run, why)
    judge(cells)
