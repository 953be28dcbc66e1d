"""Claims about callbacks: stops and events."""

from collections.abc import Sequence
from itertools import product

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import Case, Cases, judge, require, require_steps
from pv.suites.training_loop.run import Run


def falsify_stop_after_a_step(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, k in product((1, 2), (1, 2, 3)):
        run = bench.run(job(equal(8), epochs=2, accumulate=accumulate, stop_at=k))
        why = f"asked to stop after step {k}, it takes {len(run.steps)} steps" if len(run.steps) != k else ""
        cases[f"accumulation {accumulate}, step {k}"] = Case(run, why, _of_stop(run, k) if why else ())
    judge(cases)


def _of_stop(run: Run, k: int) -> tuple[str, ...]:
    """Return the known mistakes that give a run which is asked to stop after step `k` exactly its number of steps."""
    steps, epoch = len(run.steps), len(run.job.train) // (run.job.batch * run.job.accumulate)
    mistakes = {
        "a stop that takes effect when the epoch ends": steps == -(-k // epoch) * epoch,
        "a stop one step late": steps == k + 1,
        "a run that does not stop": steps == epoch * run.job.epochs,
        "a stop that counts micro-batches": steps == -(-k // run.job.accumulate),
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_epoch_events(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, batch in product((1, 2, 3), (1, 2)):
        run = bench.run(job(equal(7), epochs=2, accumulate=accumulate, batch=batch))
        require(run.events, "`events`", "where the loop has no callbacks, name `events` as missing in `features`")
        actual = [event for event in run.events if not event.startswith("step_")]
        outer = [event for event in actual if event.startswith(("train_", "epoch_"))]
        right = ["train_begin", *["epoch_begin", "epoch_end"] * 2, "train_end"]
        ends = actual[:1] == right[:1] and actual[-1:] == right[-1:]
        why = (
            ""
            if outer == right and ends
            else f"events {actual}; of runs and epochs {right} are expected, first and last"
        )
        cases[f"accumulation {accumulate}, batch {batch}"] = Case(run, why, _miscalled(outer, right) if why else ())
    judge(cases)
    require_steps(*(case.run for case in cases.values()))


def _miscalled(actual: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
    """Return which events are called too rarely or too often, or that their order is another one."""
    times = {event: (actual.count(event), right.count(event)) for event in dict.fromkeys((*right, *actual))}
    wrong = [f"`{event}` called {n} times, not {expected}" for event, (n, expected) in times.items() if n != expected]
    return tuple(wrong) or ("the right events in another order",)


def falsify_step_events(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, batch in product((1, 2, 3), (1, 2)):
        run = bench.run(job(equal(7), epochs=2, accumulate=accumulate, batch=batch))
        require(run.events, "`events`", "where the loop has no callbacks, name `events` as missing in `features`")
        actual = [event for event in run.events if event.startswith(("step_", "epoch_"))]
        half = len(run.steps) // 2
        right = ["epoch_begin", *["step_begin", "step_end"] * half, "epoch_end"] * 2
        why = f"{len(run.steps)} steps, and the events {actual}, not {right}" if actual != right else ""
        cases[f"accumulation {accumulate}, batch {batch}"] = Case(run, why, _miscalled(actual, right) if why else ())
    judge(cases)
    require_steps(*(case.run for case in cases.values()))
