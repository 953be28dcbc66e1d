"""Claims about the logged training loss."""

import math
from collections.abc import Sequence
from itertools import product

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, example, job, unequal
from pv.suites.training_loop.claims.checks import Cell, Cells, judge, require, require_forwards
from pv.suites.training_loop.diagnosis import logged
from pv.suites.training_loop.features import planned_steps
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.numbers import close, equal_to
from pv.suites.training_loop.oracle import Sums, sums
from pv.suites.training_loop.run import Run

PRINTED = 1e-4
"""Relative rounding of a logged loss that is allowed: some trainers round what they log to four digits."""

RESET = "that of the steps since the epoch began, where what was summed up since the last log is reset"
FILTERED = (
    "where an empty step counts as the sum of those before it / (their number + 1), as with "
    "`logging_nan_inf_filter` of transformers"
)


def token_mean(parts: Sequence[Sums]) -> float:
    """Return the mean over all tokens; 0 if there are none."""
    return sum(each.nats for each in parts) / max(sum(each.tokens for each in parts), 1)


def mean_of_means(parts: Sequence[Sums]) -> float:
    """Return the mean of the means of the parts that have tokens; 0 if there are none."""
    means = [token_mean([each]) for each in parts if each.tokens]
    return sum(means) / max(len(means), 1)


def loss_cells(bench: Bench, job: Job) -> Cells:
    """Return what is wrong with the loss of each log, which is to be the mean of all tokens since the last log."""
    run = bench.run(job)
    require_forwards(run)
    found, cells = logged(run.logs, "loss"), Cells()
    require(run.logs, "`logs`", "where the loop logs no loss, name `loss` as missing in `features`")
    for k in range(job.log_every, len(run.steps) + 1, job.log_every):
        cell = f"log of step {k} (every {job.log_every}, accumulation {job.accumulate}, seed {job.seed})"
        cells[cell] = _loss_cell(run, k, found.get(k))
    return cells


def _loss_cell(run: Run, k: int, found: float | None) -> Cell:
    """Return what is wrong with the loss that is logged after step k."""
    steps = [batch_sums(run, i) for i in range(k - run.job.log_every, k)]
    batches = [each for step in steps for each in step]
    wanted = token_mean(batches)
    if found is None:
        return Cell(run, f"no loss is logged, {wanted:.6g} is expected")
    if close(found, wanted, PRINTED):
        return Cell(run)
    totals = [_total(step) for step in steps]
    known = {
        "that of the last step": token_mean(totals[-1:]),
        "the mean of the steps' means": mean_of_means(totals),
        "in bits, not in nats": wanted / math.log(2),
        "the sum over the tokens, not divided": sum(each.nats for each in batches),
        "the sum of the steps' means": sum(token_mean([step]) for step in totals),
    }
    if any(len(step) > 1 for step in steps):  # else a step and its micro-batch are the same
        known |= {
            "that of the last micro-batch": token_mean(batches[-1:]),
            "the mean of the micro-batches' means": mean_of_means(batches),
            "that of the last step, as the mean of its micro-batches' means": mean_of_means(steps[-1]),
            "the sum of the micro-batches' means": sum(token_mean([each]) for each in batches),
            "the token mean times the micro-batches of the window": wanted * len(steps[-1]),
            "the token mean / the micro-batches of the window": wanted / max(len(steps[-1]), 1),
        }
    if not all(each.tokens for each in totals):
        known["the mean of the steps' means, with 0 for empty steps"] = sum(token_mean([s]) for s in totals) / len(
            totals
        )
        known[f"the mean of the steps' means, {FILTERED}"] = _filtered_mean(totals)
    per_epoch = planned_steps(run.job) // run.job.epochs
    begin, last = (k - 1) // per_epoch * per_epoch, k - run.job.log_every
    if begin != last:
        what = "the token mean of the epoch so far" if begin < last else RESET
        known[what] = token_mean([_total(batch_sums(run, i)) for i in range(begin, k)])
    if k > run.job.log_every:
        before = [_total(batch_sums(run, i)) for i in range(k)]
        known["the loss since the last log / the tokens of the whole run"] = (
            _total(batches).nats / _total(before).tokens
        )
        known["the token mean of the whole run"] = token_mean(before)
    fault = f"{found:.6g} is logged, the token mean is {wanted:.6g}"
    broken = math.isnan(found) and any(not each.tokens for each in totals)
    causes = ("0/0, the mean of a step without scored tokens",) if broken else equal_to(found, known, PRINTED)
    return Cell(run, fault, causes)


def _filtered_mean(totals: Sequence[Sums]) -> float:
    total = 0.0
    for done, each in enumerate(totals):
        total += token_mean([each]) if each.tokens else total / (done + 1)
    return total / len(totals)


def batch_sums(run: Run, i: int) -> list[Sums]:
    """Return the sums of each micro-batch of the step at index i."""
    return [sums(run.before(i), run.named(batch)) for batch in run.steps[i].batches]


def _total(parts: Sequence[Sums]) -> Sums:
    return Sums(sum(each.nats for each in parts), sum(each.tokens for each in parts), {})


def falsify_loss_of_a_step(bench: Bench) -> None:
    judge(loss_cells(bench, job(unequal(7), epochs=2)))


def falsify_loss_of_a_window(bench: Bench) -> None:
    judge(
        loss_cells(bench, job(equal(8), accumulate=2))
        | loss_cells(bench, job(unequal(8), accumulate=2))
        | loss_cells(bench, job(unequal(5), batch=1, accumulate=3))
    )


def falsify_loss_since_the_last_log(bench: Bench) -> None:
    every_three = loss_cells(bench, job(equal(8), epochs=2, log_every=3))
    judge(every_three | loss_cells(bench, job(equal(8), epochs=2, log_every=2, accumulate=2)))


def falsify_tokens_since_the_last_log(bench: Bench) -> None:
    judge(loss_cells(bench, job(unequal(7), epochs=2, log_every=3)))


def falsify_logged_tokens(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate, every in product((1, 2), (1, 3)):
        run = bench.run(job(unequal(7), epochs=2, accumulate=accumulate, log_every=every))
        cells[f"every {every}, accumulation {accumulate}"] = _tokens_cell(run)
    judge(cells)


def _tokens_cell(run: Run) -> Cell:
    """Return whether the logged tokens are those scored since the run began, or since the last log."""
    found = logged(run.logs, "tokens")
    require(found, "`tokens` in its `logs`", "`features` has them")
    rows = [[run.named(batch) for batch in step.batches] for step in run.steps]
    counts: dict[str, list[int]] = {
        "": [sum(each.scored for batch in step for each in batch) for step in rows],
        "the tokens of the last micro-batches alone": [sum(each.scored for each in step[-1]) for step in rows],
        "all tokens that have one before them, also those that are not scored": [
            sum(len(each.tokens) - 1 for batch in step for each in batch) for step in rows
        ],
        "all tokens, also those that are not scored": [
            sum(len(each.tokens) for batch in step for each in batch) for step in rows
        ],
        "all positions, padding included": [
            sum(len(batch) * max(len(each.tokens) for each in batch) for batch in step) for step in rows
        ],
        "all positions that have one before them, padding included": [
            sum(len(batch) * (max(len(each.tokens) for each in batch) - 1) for batch in step) for step in rows
        ],
    }
    every = 1 if len(found) == len(run.steps) else run.job.log_every
    same = [name for name, each in counts.items() if found in _sums_of(each, every)]
    if "" in same:
        return Cell(run)
    wanted = _sums_of(counts[""], every)[0]
    return Cell(run, f"the logged tokens are {found}, {wanted} are scored since the run began", tuple(same))


def _sums_of(counts: Sequence[int], every: int) -> list[dict[int, float]]:
    """Return the sums of the counts of steps at each log: since the run began, and since the last log."""
    at = range(every, len(counts) + 1, every)
    return [{k: float(sum(counts[:k])) for k in at}, {k: float(sum(counts[k - every : k])) for k in at}]


def falsify_empty_step_adds_nothing(bench: Bench) -> None:
    train, cells = (*equal(2), example(3, 5, 0)), Cells()
    for seed in (1, 2, 3):
        cells |= loss_cells(bench, job(train, batch=1, log_every=3, seed=seed))
    judge(cells)
