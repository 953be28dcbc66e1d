"""Claims about runs that are resumed: each is cut after every step, and must end as the run that was not cut."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import saved_job, unequal
from pv.suites.training_loop.claims.checkpoints import due
from pv.suites.training_loop.claims.checks import Cell, Cells, judge, require, require_forwards
from pv.suites.training_loop.claims.logs import batch_sums, token_mean
from pv.suites.training_loop.diagnosis import (
    different,
    different_end,
    explain_difference,
    explain_order,
    explain_rates,
    explain_set,
    first_difference,
    logged,
    other_numbers,
    present,
    same_rates,
)
from pv.suites.training_loop.numbers import equal_to
from pv.suites.training_loop.run import Run

UNEVEN = (1, 2, 3)
"""Micro-batches of a window; of the four of an epoch, 3 leave one for its last window."""
PRINTED = 1e-4
"""Relative rounding of logged numbers that is allowed."""
EARLY = "a batch that is fetched too early: before the random state is restored, or ahead, before it is saved"
UNTIED = "a load that unties: embedding and head were one parameter, and the head has a parameter of its own after it"
Check = Callable[[Run, Run, int], str | tuple[str, tuple[str, ...]]]
"""Return what is wrong with a run (second) that was resumed after a step of another one (first), and the causes."""


def cut_after_every_step(bench: Bench, check: Check, *, windows: tuple[int, ...] = (1, 2), **settings: Any) -> None:
    """Check each resumed run against the straight one, for each number of micro-batches in a window."""
    judge(cut_cells(bench, check, windows=windows, **settings))


def cut_cells(bench: Bench, check: Check, *, windows: tuple[int, ...] = (1, 2), **settings: Any) -> Cells:
    """Return what is wrong with the run that is resumed after each step."""
    cells: Cells = {}
    for accumulate in windows:
        straight = bench.run(saved_job(accumulate=accumulate, **settings))
        for k in due(bench, straight):
            if k < len(straight.steps):
                cells[f"accumulation {accumulate}, cut after step {k}"] = cut_cell(bench, straight, k, check)
    return cells


def cut_cell(bench: Bench, straight: Run, k: int, check: Check) -> Cell:
    """Return what is wrong with the run that is resumed after step k."""
    if k not in straight.checkpoints:
        return Cell(straight, f"there is no checkpoint of step {k}")
    again = bench.resume(straight, k)
    found = check(straight, again, k)
    return Cell(again, found) if isinstance(found, str) else Cell(again, *found)


def rest_of_epoch(straight: Run, k: int) -> int:
    """Return how many steps of the epoch of a cut are left."""
    return -k % (len(straight.steps) // straight.job.epochs)


def falsify_rest_of_the_epoch(bench: Bench) -> None:
    def check(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        rest = rest_of_epoch(straight, k)
        epoch, taken = divmod(sum(map(len, straight.order[:k])), len(straight.job.train))
        return order_fault(straight, again, k, slice(rest), taken, epoch)

    cut_after_every_step(bench, check, windows=UNEVEN)


def order_fault(
    straight: Run, again: Run, k: int, part: slice, taken: int, cut: int | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return how the examples in a part of the steps after step k differ, and which order of the straight run it is.

    taken: the examples that the straight run had used of the epoch. cut: the index of that epoch.
    """
    found, wanted = again.order[part], straight.order[k:][part]
    if found == wanted:
        return "", ()
    names, right = ([name for step in steps for name in step] for steps in (found, wanted))
    fault = f"examples {[list(step) for step in found]}, not {[list(step) for step in wanted]}"
    anew = ("the order of the first step and those after it: the data start again",)
    known = explain_order(names, straight, taken, cut) or explain_set(names, right)
    if not starts_again(straight, again):
        return fault, known
    return fault, anew if cut is None else (*anew, *known)  # else the first epoch is named twice


def starts_again(straight: Run, again: Run) -> bool:
    """Return whether a resumed run has the examples of the first steps of the straight one."""
    return again.order == straight.order[: len(again.order)]


def falsify_steps_left(bench: Bench) -> None:
    def check(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        wanted, found = len(straight.steps) - k, len(again.steps)
        if wanted == found:
            return "", ()
        causes = _told_apart(bench, straight, k, _of_steps_left(straight, found, k))
        return f"it takes {found} steps more, not {wanted}", causes

    cells = cut_cells(bench, check)
    if not bench.missing("", ("cadence",)):
        long = bench.run(saved_job(train=unequal(11), batch=1, epochs=1))
        name = "of 11 steps, cut after step 10, whose name as text sorts before 9"
        cells[name] = cut_cell(bench, long, 10, check)
    judge(cells)


def _told_apart(bench: Bench, straight: Run, k: int, causes: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of several causes a run of another epoch has that is cut after step k, or an epoch later."""
    if len(causes) < 2:
        return causes
    longer = bench.run(replace(straight.job, directory=Path(), epochs=straight.job.epochs + 1))
    for at in sorted({k, k + len(straight.steps) // straight.job.epochs} & {*longer.checkpoints}):
        there = _of_steps_left(longer, len(bench.resume(longer, at).steps), at)
        causes = tuple(each for each in causes if each in there) or causes
    return causes


def _of_steps_left(straight: Run, found: int, k: int) -> tuple[str, ...]:
    """Return the known mistakes by which a run that is resumed after step k takes so many steps."""
    total, epoch = len(straight.steps), len(straight.steps) // straight.job.epochs
    last = max((at for at in straight.checkpoints if at <= k), key=lambda at: str(straight.checkpoints[at]), default=0)
    known = {
        "a run from its first step: the steps before the cut are not counted": found == total,
        f"a run from the checkpoint of step {last}, whose name sorts last as text": last != k and found == total - last,
        "a run without the epoch that begins after the cut": k % epoch == 0 and found == total - k - epoch,
        "a run from the start of the epoch that was cut": k % epoch > 0 and found == total - k + k % epoch,
        "a run that ends with the epoch that was cut": found == -k % epoch and found < total - k,
        "a run of one epoch more than planned": found == total - k + epoch,
    }
    return tuple(name for name, holds in known.items() if holds)


def falsify_resume_of_a_finished_run(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate in (1, 2):
        straight = bench.run(saved_job(accumulate=accumulate))
        again = bench.resume(straight, len(straight.steps))
        differing = different(again.weights, straight.weights)
        fault = f"{len(again.steps)} steps are taken" if again.steps else f"weights {differing}" if differing else ""
        causes = ("another epoch",) if len(again.steps) == len(straight.steps) // straight.job.epochs else ()
        causes = ("a new run",) if len(again.steps) == len(straight.steps) else causes
        cells[f"accumulation {accumulate}"] = Cell(again, fault, causes)
    judge(cells)


def falsify_orders_of_later_epochs(bench: Bench) -> None:
    def check(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        rest = rest_of_epoch(straight, k)
        taken = sum(map(len, straight.order[: k + rest])) % len(straight.job.train)
        return order_fault(straight, again, k, slice(rest, None), taken)

    cut_after_every_step(bench, check, windows=UNEVEN)


def falsify_rates_after_a_cut(bench: Bench) -> None:
    def check(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        wanted, found = ([step.rate for step in steps] for steps in (straight.steps[k:], again.steps))
        same = same_rates(found, wanted)
        return "" if same else f"rates {found}, not {wanted}", () if same else explain_rates(found, straight, k)

    # the state of the optimizer has the rate of the next epoch, but not those after it
    cut_after_every_step(bench, check, epochs=3 if bench.missing("", ("cadence",)) else 2)


def same_end(straight: Run, again: Run, k: int) -> str:
    """Return how the weights at the end differ, and where the difference began."""
    differing = different_end(again, straight, k)
    return f"weights at the end: {differing}; {first_difference(again, straight, k)}" if differing else ""


def falsify_weights_without_dropout(bench: Bench) -> None:
    def check(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        return same_end(straight, again, k), _of_state(straight, again, k)

    cut_after_every_step(bench, check, dropout=0.0, log_every=3)


def _of_state(straight: Run, again: Run, k: int) -> tuple[str, ...]:
    """Return which part of a checkpoint is not restored, by the first step after it."""
    if not again.steps:
        return ()
    if straight.tied and not again.tied:
        return (UNTIED,)
    step, right = again.steps[0], straight.steps[k]
    other = different(step.first, straight.before(k)) if step.first else ""
    counts = {name: each for name, each in step.state.items() if name.endswith(".step")}
    known = {
        "the state of a new optimizer: its own is not restored": bool(counts)
        and all(float(each) == 1 for each in counts.values()),
        f"weights that are not those of the checkpoint: {other}": bool(other),
        "state that the optimizer keeps outside `optimizer.state`, as in an attribute: it is not restored": (
            not other
            and not different(present(step.gradient), present(right.gradient))
            and (step.names, step.rates) == (right.names, right.rates)
            and not different(step.state, right.state)
            and bool(different(step.weights, right.weights))
        ),
    }
    return tuple(name for name, holds in known.items() if holds)


def falsify_weights_with_dropout(bench: Bench) -> None:
    require_forwards(bench.run(saved_job()))  # without one in training mode, there is no dropout
    cut_after_every_step(bench, same_end_with_draws)


def falsify_weights_with_random_data(bench: Bench) -> None:
    noisy, plain = (bench.run(saved_job(dropout=0.0, noise=noise)) for noise in (True, False))
    if noisy.order == plain.order and not different(noisy.weights, plain.weights):
        raise SkipTest("with `job.noise` the data draw no random numbers: the run is the same without; see `noise`")
    cut_after_every_step(bench, partial(_fetched_early, bench), dropout=0.0, noise=True)


def _fetched_early(bench: Bench, straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
    """Return how the weights at the end differ with data that draw random numbers, and why.

    If a run with dropout is resumed as it should be, its random state is restored.
    """
    fault, causes = same_end_with_draws(straight, again, k)
    if causes:
        dropping = bench.run(replace(straight.job, directory=Path(), noise=False, dropout=saved_job().dropout))
        if not same_end(dropping, bench.resume(dropping, k), k):
            causes = (EARLY,)
    return fault, causes


def same_end_with_draws(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
    """Return how the weights at the end differ in a run that draws random numbers, and why."""
    fault = same_end(straight, again, k)
    others = straight.job.noise and again.order != straight.order[k:]  # the order itself is a premise
    drawn = fault and (others or explain_difference(again, straight, k) == "random numbers")
    cause = "other random numbers: their state is not restored, or something is drawn after it is"
    if again.steps and again.steps[0].random == straight.steps[0].random:
        cause = "other random numbers, those of the start of the run: it is seeded, and no state is restored after that"
    return fault, (cause,) if drawn else ()


def falsify_tied_weights(bench: Bench) -> None:
    def check(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        if not straight.tied:
            raise SkipTest("embedding and head are two parameters also at the end of the run that was not cut")
        apart = "" if again.tied else "embedding and head are no longer one parameter"
        return same_end(straight, again, k) or apart, (UNTIED,) if apart else ()

    cut_after_every_step(bench, check, dropout=0.0, tied=True)


def falsify_history_of_losses(bench: Bench) -> None:
    cut_after_every_step(bench, history_fault, dropout=0.0, log_every=3)


def _differing_logs(steps: Sequence[int], found: Mapping[int, float], wanted: Mapping[int, float]) -> str:
    shown = [[f"{rows[at]:.6g}" if at in rows else "none" for rows in (found, wanted)] for at in steps]
    return ", ".join(f"step {at}: {one}, not {other}" for at, (one, other) in zip(steps, shown, strict=True))


def history_fault(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
    """Return which logged losses of a resumed run differ, and why."""
    wanted, found = logged(straight.logs, "loss"), logged(again.logs, "loss")
    require(wanted, "loss in its `logs`", "where the loop logs none, name `loss` as missing in `features`")
    differing = other_numbers(found, wanted, PRINTED)
    seen = _differing_logs(differing, found, wanted)
    causes = (
        ["without the logs before the cut"] if found.keys() == {at for at in wanted if at > k} != wanted.keys() else []
    )
    if differing and differing[0] in found and differing[0] > k:
        after = [each for i in range(k, differing[0]) for each in batch_sums(straight, i)]
        causes += equal_to(
            found[differing[0]], {"the mean over the steps after the cut only": token_mean(after)}, PRINTED
        )
    return f"logged losses differ ({seen})" if seen else "", tuple(causes)


def falsify_other_logged_numbers(bench: Bench) -> None:
    def check(straight: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        names = dict.fromkeys(name for row in straight.logs for name in row if name not in ("step", "loss"))
        require(
            names,
            "number in its `logs` besides the loss",
            "where the loop logs none, name `rate` as missing in `features`",
        )
        compared.extend(row for row in again.logs if row["step"] > k)
        found = [number_fault(straight, again, k, name) for name in names]
        return "; ".join(fault for fault, _ in found if fault), tuple(cause for _, causes in found for cause in causes)

    compared: list[Mapping[str, float]] = []
    cut_after_every_step(bench, check, dropout=0.0, log_every=3)
    require(compared, "`logs` of steps after a cut", "and the run that was not cut has some")


def number_fault(straight: Run, again: Run, k: int, name: str) -> tuple[str, tuple[str, ...]]:
    """Return in which logs after the cut a number differs, and why."""
    steps = logged(again.logs, "step")
    wanted = {at: each for at, each in logged(straight.logs, name).items() if at in steps}
    found = {at: each for at, each in logged(again.logs, name).items() if at in wanted}
    differing = other_numbers(found, wanted, PRINTED)
    rows = [each for step in straight.steps[:k] for each in straight.named(step.names)]
    counts = {sum(each.scored for each in rows), sum(len(each.tokens) for each in rows)}
    missing = {round(wanted[at] - found.get(at, wanted[at]), 6) for at in differing}
    anew = len(missing) == 1 and missing <= counts
    seen = _differing_logs(differing, found, wanted)
    return f"{name} ({seen})" if seen else "", (f"{name} counted from 0 after the cut",) if anew else ()
