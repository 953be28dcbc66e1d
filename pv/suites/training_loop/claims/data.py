"""Claims about the examples of each epoch, the number of steps, stops and events."""

import itertools
import math
from collections.abc import Sequence
from itertools import combinations, product
from typing import Unpack
from unittest import SkipTest

from hypothesis import given
from hypothesis import strategies as st

from pv.errors import KnownCause
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import Shape, equal, shapes, unequal
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    format_causes,
    judge,
    refute,
    require,
    require_forwards,
    require_steps,
    trains_in_eval_mode,
)
from pv.suites.training_loop.diagnosis import differing_tensors, explain_difference, first_difference
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.run import Run, Unfinished

# The cause of windows across epochs, which may be intended.
WINDOW_ACROSS_EPOCHS = (
    "a window that is filled with examples of the next epoch; if this is intended, name `short_windows` as missing in "
    "`features`, or `epochs` if the loop counts only steps"
)


def consumed(run: Run) -> list[int]:
    """Return the names of the examples in all forwards in training mode with gradients, in order."""
    parts = [*(step.names for step in run.steps), *run.leftover]
    return [name for part in parts for name in part]


@given(**shapes())
def falsify_each_example_once_an_epoch(bench: Bench, **shape: Unpack[Shape]) -> None:
    run = bench.run(Job(**shape))
    names, n, epochs = consumed(run), len(run.job.train), run.job.epochs
    if "short_windows" in bench.lacks:
        _judge_passes(run)
    elif len(names) != n * epochs:
        fault = f"{epochs} x {n} examples are due, and {len(names)} are used: {names}"
        refute(fault, run, _causes_of_number(run, n * epochs - len(names)))
    for epoch in range(len(names) // n):
        # Order is free within an epoch; the set of examples is not.
        part = sorted(names[epoch * n : (epoch + 1) * n])
        if part != list(range(1, n + 1)):
            refute(f"epoch {epoch + 1} uses the examples {part}, not each of 1 to {n} once", run)


def _judge_passes(run: Run) -> None:
    """Refute the claim if an example is repeated in the last, incomplete pass over the data.

    Raise SkipTest if no example is used.
    """
    names, n = consumed(run), len(run.job.train)
    if not names:
        raise SkipTest("no example is used: the data do not fill a window")
    rest = names[len(names) // n * n :]
    if len(set(rest)) < len(rest):
        refute(f"the incomplete pass after {len(names) // n} passes over the data repeats examples: {rest}", run)


def _causes_of_number(run: Run, missing: int) -> tuple[str, ...]:
    """Return the known mistakes that explain a wrong number of used examples.

    Args:
        run: The run.
        missing: The number of examples that are not used; negative if examples are repeated.
    """
    job, trained = run.job, {example.name for example in run.job.train}
    mistakes = {
        "training in eval mode": trains_in_eval_mode(run),
        "without the last, incomplete batch": missing == job.epochs * (len(trained) % job.batch),
        "without the last, incomplete window": missing == job.epochs * (len(trained) % (job.batch * job.accumulate)),
    }
    if missing < 0 and _fills_windows_across_epochs(run):
        return (WINDOW_ACROSS_EPOCHS,)
    if missing < 0 and _has_only_full_windows(run):
        return ("without the last, incomplete window of each epoch: the next epoch begins in its place",)
    return tuple(name for name, holds in mistakes.items() if holds)


def _fills_windows_across_epochs(run: Run) -> bool:
    """Return whether windows are filled with examples of the next epoch.

    Then all windows are full, and no pass over the data repeats an example.
    """
    names, n = consumed(run), len(run.job.train)
    passes = [names[i : i + n] for i in range(0, len(names), n)]
    return all(len(step.batches) == run.job.accumulate for step in run.steps) and all(
        len({*order}) == len(order) for order in passes
    )


def _has_only_full_windows(run: Run) -> bool:
    """Return whether every epoch consists of full windows only, leaves out the other examples, and repeats none."""
    job, names = run.job, consumed(run)
    size = job.batch * job.accumulate
    n = len(job.train) // size * size
    if any(len(step.batches) > job.accumulate for step in run.steps):
        return False
    epochs = [names[i : i + n] for i in range(0, len(names), n)] if 0 < n < len(job.train) else []
    return bool(epochs) and all(len(set(epoch)) == len(epoch) for epoch in epochs)


ORDERED = 21
"""Number of examples whose orders are compared.

It is large because some loops shuffle only batches with fixed contents: few batches could have equal orders by chance.
"""


def epoch_orders(bench: Bench, *seeds: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """Run three epochs per seed, and return the orders of the complete epochs, by seed and epoch.

    Raises:
        SkipTest: Fewer than two epochs of a seed use all examples.
    """
    n = ORDERED
    names = {seed: consumed(bench.run(Job(train=unequal(n), epochs=3, seed=seed))) for seed in seeds}
    orders = {(seed, e + 1): tuple(names[seed][n * e : n * e + n]) for seed, e in product(seeds, range(3))}
    complete = {epoch: order for epoch, order in orders.items() if len(order) == n}
    if few := [seed for seed in seeds if sum(other_seed == seed for other_seed, _ in complete) < 2]:
        raise SkipTest(
            f"with seed {few[0]}, fewer than two epochs use all {n} examples: there are no orders to compare"
        )
    return complete


def same_orders(bench: Bench, *seeds: int) -> str:
    """Return the pairs of epochs that have the same order, as text; "" if there are none."""
    orders = epoch_orders(bench, *seeds)
    same = [(a, b) for a, b in combinations(orders, 2) if orders[a] == orders[b]]
    pairs = [f"seed {a[0]} epoch {a[1]} and seed {b[0]} epoch {b[1]} ({orders[a]})" for a, b in same]
    return "; ".join(pairs)


def falsify_every_epoch_has_its_own_order(bench: Bench) -> None:
    if same := same_orders(bench, 1, 1000):
        orders = epoch_orders(bench, 1, 1000)
        is_constant = all(order == orders[seed, 1] for (seed, _), order in orders.items())
        cause = "the order of the first epoch in every epoch: it does not depend on the epoch"
        refute(f"these epochs have the same order: {same}", bench.used[-1], (cause,) if is_constant else ())


def falsify_neighbouring_seeds_share_no_order(bench: Bench) -> None:
    if same := same_orders(bench, 1, 2, 3):
        orders = epoch_orders(bench, 1, 2, 3)
        # With a generator that is seeded with seed + epoch, epoch e of seed s has the order of epoch e - 1 of s + 1.
        # The last epoch may be incomplete, and has no order then.
        uses_sum = all(orders[s, e] == orders[s + 1, e - 1] for s in (1, 2) for e in (2, 3) if (s, e) in orders)
        causes = ("an order that depends on seed + epoch only",) if uses_sum else ()
        refute(f"these epochs have the same order: {same}", bench.used[-1], causes)


def falsify_same_seed_gives_the_same_run(bench: Bench) -> None:
    job = Job(train=unequal(7), seed=3, epochs=2, accumulate=2, dropout=0.3, optimizer="adamw", rate=0.01)
    first = bench.run(job)
    require_steps(first)
    require_forwards(first)  # without forwards in training mode, there is no dropout
    # `run` would return the cached first run.
    second = bench.rerun(first.job)
    if first.order != second.order or differing_tensors(second.weights, first.weights):
        causes = (f"{explain_difference(second, first)} that the seed does not determine",)
        refute(f"two runs with the same seed differ: {first_difference(second, first)}", second, causes)


def falsify_workers_change_nothing(bench: Bench) -> None:
    plain, workers = (bench.run(Job(train=unequal(7), epochs=2, accumulate=2, workers=n)) for n in (0, 2))
    require_steps(plain, workers)
    if plain.order != workers.order or differing_tensors(workers.weights, plain.weights):
        fault = f"the runs with 2 workers and without workers differ: {first_difference(workers, plain)}"
        refute(fault, workers, _causes_of_workers(plain, workers))
    # Equal runs prove nothing if no worker was started.
    if workers.started <= plain.started:
        hint = "pass it to the loader of the training data, or name `workers` as missing in `features`"
        raise SkipTest(f"with `job.workers` 2, no more processes or threads are started than with 0: {hint}")


def _causes_of_workers(plain: Run, workers: Run) -> tuple[str, ...]:
    """Return the known mistakes that explain the examples of the run with workers."""
    expected, actual, n = consumed(plain), consumed(workers), len(plain.job.train)
    if all(actual.count(name) == 2 * expected.count(name) for name in {*expected}):
        return ("the whole data from each worker: the workers do not share the examples",)
    pairs = [(actual[i : i + n], expected[i : i + n]) for i in range(0, len(expected), n)]
    if len(actual) != len(expected) or any(sorted(a) != sorted(b) for a, b in pairs):
        return ()
    batches = ({batch for step in run.steps for batch in step.batches} for run in (plain, workers))
    epochs = " and ".join(str(epoch) for epoch, (a, b) in enumerate(pairs, 1) if a != b)
    if not epochs or len({frozenset(batch) for batch in batches}) == 1:
        return ("the same batches in another order",) if epochs else ()
    return (f"another order of the same examples in epoch {epochs}: with workers, the order is drawn differently",)


@given(**shapes())
def falsify_every_batch_reaches_the_optimizer(bench: Bench, **shape: Unpack[Shape]) -> None:
    run = bench.run(Job(**shape))
    # A loop that fills windows with examples of the next epoch may leave an incomplete window at the end of the run.
    crosses_epochs = "short_windows" in bench.lacks
    if len(run.leftover) > (run.job.accumulate - 1 if crosses_epochs else 0):
        causes = () if crosses_epochs else _causes_of_leftover(bench, run)
        refute(f"no step follows the micro-batches {list(run.leftover)}", run, causes)
    sizes = [len(step.batches) for step in run.steps]
    require_steps(run)
    if not any(sizes):
        require_forwards(run)
    if max(sizes, default=0) > run.job.accumulate:
        refute(f"steps take {sizes} micro-batches, accumulation is {run.job.accumulate}", run)
    short = _short_windows(run) if crosses_epochs else []
    if short and _end_epochs(run, short):
        hint = "windows end with epochs, although `features` names `short_windows` as missing"
        raise SkipTest(f"steps take {sizes} micro-batches: {hint}")
    if short:
        refute(f"steps take {sizes} micro-batches: windows of {run.job.accumulate} are incomplete inside an epoch", run)


def _causes_of_leftover(bench: Bench, run: Run) -> tuple[str, ...]:
    """Return the known mistakes that leave the last micro-batches of a run without a step."""
    # With three micro-batches per epoch in windows of two, only windows across epochs give three steps in two epochs.
    two = bench.run(Job(train=equal(3), batch=1, accumulate=2, epochs=2))
    if len(two.steps) == 3 and _fills_windows_across_epochs(two):
        return (WINDOW_ACROSS_EPOCHS,)
    rest = math.ceil(len(run.job.train) / run.job.batch) % run.job.accumulate
    # A step clears `leftover`. Without a step, the incomplete windows of all epochs are left.
    rest *= 1 if run.steps else run.job.epochs
    return ("the last, incomplete window: no step is taken for it",) if len(run.leftover) == rest else ()


def _short_windows(run: Run) -> list[int]:
    """Return the indices of the steps with an incomplete window, apart from the last step.

    The list is empty if an epoch has only one window, or if a forward has several micro-batches.
    """
    job = run.job
    merged = any(len(batch) > job.batch for step in run.steps for batch in step.batches)
    single = len(job.train) <= job.batch * job.accumulate
    short = [k for k, step in enumerate(run.steps[:-1]) if len(step.batches) < job.accumulate]
    return [] if merged or single else short


def _end_epochs(run: Run, steps: list[int]) -> bool:
    """Return whether the steps with these indices are exactly the steps that end an epoch, apart from the last step."""
    n, used = len(run.job.train), list(itertools.accumulate(len(step.names) for step in run.steps[:-1]))
    return steps == [k for k, count in enumerate(used) if count % n == 0]


def steps_of_epoch(run: Run) -> int:
    """Return the number of steps of an epoch whose last batch and last window may be incomplete."""
    batches = math.ceil(len(run.job.train) / run.job.batch)
    return math.ceil(batches / run.job.accumulate)


@given(**shapes())
def falsify_steps_of_an_epoch(bench: Bench, **shape: Unpack[Shape]) -> None:
    run = bench.run(Job(**shape))
    expected, data = run.job.epochs * steps_of_epoch(run), f"{run.job.epochs} x {len(run.job.train)} examples"
    # Without short windows, an epoch may end inside a window: fewer steps are allowed.
    window = run.job.batch * run.job.accumulate
    minimum = run.job.epochs * len(run.job.train) // window if "short_windows" in bench.lacks else expected
    if not minimum <= len(run.steps) <= expected:
        refute(f"the run takes {len(run.steps)} steps for {data}, not {expected}", run, _causes_of_steps(run))


def _causes_of_steps(run: Run) -> tuple[str, ...]:
    """Return the known mistakes that give too many steps; () if the run takes too few steps."""
    if len(run.steps) < run.job.epochs * steps_of_epoch(run):
        return ()
    repeated = [k for k, step in enumerate(run.steps, 1) if not step.batches]
    if repeated:
        return (f"a second step of the optimizer without a micro-batch (step {repeated[0]})",)
    each = run.job.accumulate > 1 and all(len(step.batches) == 1 for step in run.steps)
    return ("a step for each micro-batch",) if each else ()


@given(**shapes(), max_steps=st.integers(1, 7))
def falsify_max_steps_is_exact(bench: Bench, **shape: Unpack[Shape]) -> None:
    run = bench.run(Job(**shape))
    if len(run.steps) != run.job.max_steps:
        refute(f"the run takes {len(run.steps)} steps, max_steps is {run.job.max_steps}", run, _causes_of_limit(run))


def _causes_of_limit(run: Run) -> tuple[str, ...]:
    """Return the known mistakes that explain the number of steps of a run with `max_steps`."""
    actual, limit, epoch = len(run.steps), run.job.max_steps or 0, steps_of_epoch(run)
    mistakes = {
        "max_steps in micro-batches": actual == math.ceil(limit / run.job.accumulate),
        "one step less than max_steps": actual == limit - 1,
        "one step more than max_steps": actual == limit + 1,
        "a limit that is checked when an epoch ends": actual > limit and actual == math.ceil(limit / epoch) * epoch,
        "a run that ends after `epochs`": actual < limit and actual == run.job.epochs * epoch,
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_every_run_ends(bench: Bench) -> None:
    failed, complete, runs = {}, {}, []
    # In this order: full windows, an incomplete window, a single example, an incomplete batch.
    for n, batch, accumulate in ((4, 2, 2), (3, 1, 2), (1, 1, 2), (3, 2, 1)):
        case = f"{n} examples, batch {batch}, accumulation {accumulate}"
        complete[case] = n % (batch * accumulate) == 0
        try:
            runs.append(bench.run(Job(train=unequal(n), batch=batch, accumulate=accumulate, epochs=2)))
        except Unfinished as error:
            failed[case] = str(error)
    if not failed:
        require_steps(*runs)
        return
    only_incomplete = not any(complete[case] for case in failed)
    causes = ("a wait for a full batch or window: the last of an epoch may be incomplete",) if only_incomplete else ()
    summary = f" ({len(failed)} of {len(complete)} cases fail: {'; '.join(failed)})"
    raise (KnownCause if causes else AssertionError)(f"{next(iter(failed.values()))}{format_causes(causes)}{summary}")


def falsify_reported_count_of_steps(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, limit in product((1, 2), (None, 3)):
        run = bench.run(Job(train=unequal(7), epochs=2, accumulate=accumulate, max_steps=limit))
        require(run.final_step is not None, "`final_step`", "if no steps are counted, `not_claimed` names TL-STEP-003")
        actual, taken = run.final_step, len(run.steps)
        fault = f"the trainer counts {actual} steps, and has taken {taken}" if actual != taken else ""
        untried = "" if run.steps else "no step is taken, and none is counted"
        causes = _causes_of_count(run) if fault else ()
        cases[f"accumulation {accumulate}, max_steps {limit}"] = Case(run, fault, causes, untried=untried)
    judge(cases)


def _causes_of_count(run: Run) -> tuple[str, ...]:
    """Return the known mistakes that give the reported number of steps."""
    mistakes = {
        "one more than the steps taken": len(run.steps) + 1,
        "one less than the steps taken": len(run.steps) - 1,
        "a count of micro-batches": sum(len(step.batches) for step in run.steps),
    }
    return tuple(name for name, count in mistakes.items() if count == run.final_step)


def falsify_stop_after_a_step(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, k in product((1, 2), (1, 2, 3)):
        run = bench.run(Job(train=equal(8), epochs=2, accumulate=accumulate, stop_at=k))
        fault = f"the run takes {len(run.steps)} steps, a stop is due after step {k}" if len(run.steps) != k else ""
        cases[f"accumulation {accumulate}, step {k}"] = Case(run, fault, _causes_of_stop(run, k) if fault else ())
    judge(cases)


def _causes_of_stop(run: Run, k: int) -> tuple[str, ...]:
    """Return the known mistakes that explain the number of steps of a run that must stop after step `k`."""
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
        run = bench.run(Job(train=equal(7), epochs=2, accumulate=accumulate, batch=batch))
        require(run.events, "`events`", "if the loop has no callbacks, name `events` as missing in `features`")
        events = [event for event in run.events if not event.startswith("step_")]
        actual = [event for event in events if event.startswith(("train_", "epoch_"))]
        expected = ["train_begin", *["epoch_begin", "epoch_end"] * 2, "train_end"]
        fault = ""
        # Other events, such as `log`, may come only between `train_begin` and `train_end`.
        if actual != expected or events[:1] != expected[:1] or events[-1:] != expected[-1:]:
            fault = f"the events are {events}; expected {expected}, with other events only in between"
        causes = _causes_of_events(actual, expected) if fault else ()
        cases[f"accumulation {accumulate}, batch {batch}"] = Case(run, fault, causes)
    judge(cases)
    require_steps(*(case.run for case in cases.values()))


def _causes_of_events(actual: Sequence[str], expected: Sequence[str]) -> tuple[str, ...]:
    """Return a cause for each event that is called too rarely or too often. Without any, the order is the cause."""
    counts = {event: (actual.count(event), expected.count(event)) for event in dict.fromkeys((*expected, *actual))}
    wrong = [f"`{event}` called {n} times, not {due}" for event, (n, due) in counts.items() if n != due]
    return tuple(wrong) or ("the correct events in another order",)


def falsify_step_events(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, batch in product((1, 2, 3), (1, 2)):
        run = bench.run(Job(train=equal(7), epochs=2, accumulate=accumulate, batch=batch))
        require(run.events, "`events`", "if the loop has no callbacks, name `events` as missing in `features`")
        actual = [event for event in run.events if event.startswith(("step_", "epoch_"))]
        half = len(run.steps) // 2
        expected = ["epoch_begin", *["step_begin", "step_end"] * half, "epoch_end"] * 2
        fault = f"in {len(run.steps)} steps, the events are {actual}, not {expected}" if actual != expected else ""
        causes = _causes_of_events(actual, expected) if fault else ()
        cases[f"accumulation {accumulate}, batch {batch}"] = Case(run, fault, causes)
    judge(cases)
    require_steps(*(case.run for case in cases.values()))
