"""Claims about the logged training loss."""

import math
from collections.abc import Sequence
from itertools import product

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, example, job, unequal
from pv.suites.training_loop.claims.checks import Case, Cases, judge, require, require_forwards
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
    return sum(part.nats for part in parts) / max(sum(part.tokens for part in parts), 1)


def mean_of_means(parts: Sequence[Sums]) -> float:
    """Return the mean of the means of the parts that have tokens; 0 if there are none."""
    means = [token_mean([part]) for part in parts if part.tokens]
    return sum(means) / max(len(means), 1)


def loss_cases(bench: Bench, job: Job) -> Cases:
    """Return a case for every log: its loss must be the mean over all tokens since the last log."""
    run = bench.run(job)
    require_forwards(run)
    losses, cases = logged(run.logs, "loss"), Cases()
    require(run.logs, "`logs`", "where the loop logs no loss, name `loss` as missing in `features`")
    for k in range(job.log_every, len(run.steps) + 1, job.log_every):
        case = f"log of step {k} (every {job.log_every}, accumulation {job.accumulate}, seed {job.seed})"
        cases[case] = _loss_case(run, k, losses.get(k))
    return cases


def _loss_case(run: Run, k: int, actual: float | None) -> Case:
    """Compare the loss that is logged after step k with the mean over all tokens since the last log."""
    steps = [batch_sums(run, i) for i in range(k - run.job.log_every, k)]
    batches = [batch for step in steps for batch in step]
    expected = token_mean(batches)
    if actual is None:
        return Case(run, f"no loss is logged, {expected:.6g} is expected")
    if close(actual, expected, PRINTED):
        return Case(run)
    totals = [_total(step) for step in steps]
    mistakes = {
        "that of the last step": token_mean(totals[-1:]),
        "the mean of the steps' means": mean_of_means(totals),
        "in bits, not in nats": expected / math.log(2),
        "the sum over the tokens, not divided": sum(batch.nats for batch in batches),
        "the sum of the steps' means": sum(token_mean([step]) for step in totals),
    }
    if any(len(step) > 1 for step in steps):  # else a step and its micro-batch are the same
        mistakes |= {
            "that of the last micro-batch": token_mean(batches[-1:]),
            "the mean of the micro-batches' means": mean_of_means(batches),
            "that of the last step, as the mean of its micro-batches' means": mean_of_means(steps[-1]),
            "the sum of the micro-batches' means": sum(token_mean([batch]) for batch in batches),
            "the token mean times the micro-batches of the window": expected * len(steps[-1]),
            "the token mean / the micro-batches of the window": expected / max(len(steps[-1]), 1),
        }
    if not all(total.tokens for total in totals):
        mistakes["the mean of the steps' means, with 0 for empty steps"] = sum(token_mean([s]) for s in totals) / len(
            totals
        )
        mistakes[f"the mean of the steps' means, {FILTERED}"] = _filtered_mean(totals)
    per_epoch = planned_steps(run.job) // run.job.epochs
    # A loop that resets its sums with each epoch logs another window wherever the last log was in another epoch.
    begin, last = (k - 1) // per_epoch * per_epoch, k - run.job.log_every
    if begin != last:
        name = "the token mean of the epoch so far" if begin < last else RESET
        mistakes[name] = token_mean([_total(batch_sums(run, i)) for i in range(begin, k)])
    if k > run.job.log_every:
        before = [_total(batch_sums(run, i)) for i in range(k)]
        mistakes["the loss since the last log / the tokens of the whole run"] = (
            _total(batches).nats / _total(before).tokens
        )
        mistakes["the token mean of the whole run"] = token_mean(before)
    fault = f"{actual:.6g} is logged, the token mean is {expected:.6g}"
    broken = math.isnan(actual) and any(not total.tokens for total in totals)
    causes = ("0/0, the mean of a step without scored tokens",) if broken else equal_to(actual, mistakes, PRINTED)
    return Case(run, fault, causes)


def _filtered_mean(totals: Sequence[Sums]) -> float:
    total = 0.0
    for done, sums_ in enumerate(totals):
        # transformers adds tr_loss / (1 + steps since the last log) in place of a NaN loss.
        total += token_mean([sums_]) if sums_.tokens else total / (done + 1)
    return total / len(totals)


def batch_sums(run: Run, i: int) -> list[Sums]:
    """Return the sums of each micro-batch of the step at index i."""
    return [sums(run.before(i), run.named(batch)) for batch in run.steps[i].batches]


def _total(parts: Sequence[Sums]) -> Sums:
    return Sums(sum(part.nats for part in parts), sum(part.tokens for part in parts), {})


def falsify_loss_of_a_step(bench: Bench) -> None:
    judge(loss_cases(bench, job(unequal(7), epochs=2)))


def falsify_loss_of_a_window(bench: Bench) -> None:
    judge(
        loss_cases(bench, job(equal(8), accumulate=2))
        | loss_cases(bench, job(unequal(8), accumulate=2))
        | loss_cases(bench, job(unequal(5), batch=1, accumulate=3))
    )


def falsify_loss_since_the_last_log(bench: Bench) -> None:
    every_three = loss_cases(bench, job(equal(8), epochs=2, log_every=3))
    judge(every_three | loss_cases(bench, job(equal(8), epochs=2, log_every=2, accumulate=2)))


def falsify_tokens_since_the_last_log(bench: Bench) -> None:
    judge(loss_cases(bench, job(unequal(7), epochs=2, log_every=3)))


def falsify_logged_tokens(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, every in product((1, 2), (1, 3)):
        run = bench.run(job(unequal(7), epochs=2, accumulate=accumulate, log_every=every))
        cases[f"every {every}, accumulation {accumulate}"] = _tokens_case(run)
    judge(cases)


def _tokens_case(run: Run) -> Case:
    """Return whether the logged tokens are those scored since the run began, or since the last log."""
    actual = logged(run.logs, "tokens")
    require(actual, "`tokens` in its `logs`", "`features` has them")
    rows = [[run.named(batch) for batch in step.batches] for step in run.steps]
    counts: dict[str, list[int]] = {
        "": [sum(example.scored for batch in step for example in batch) for step in rows],
        "the tokens of the last micro-batches alone": [sum(example.scored for example in step[-1]) for step in rows],
        "all tokens that have one before them, also those that are not scored": [
            sum(len(example.tokens) - 1 for batch in step for example in batch) for step in rows
        ],
        "all tokens, also those that are not scored": [
            sum(len(example.tokens) for batch in step for example in batch) for step in rows
        ],
        "all positions, padding included": [
            sum(len(batch) * max(len(example.tokens) for example in batch) for batch in step) for step in rows
        ],
        "all positions that have one before them, padding included": [
            sum(len(batch) * (max(len(example.tokens) for example in batch) - 1) for batch in step) for step in rows
        ],
    }
    every = 1 if len(actual) == len(run.steps) else run.job.log_every
    # The right count has the empty name; the others are mistakes.
    same = [name for name, count in counts.items() if actual in _sums_of(count, every)]
    if "" in same:
        return Case(run)
    expected = _sums_of(counts[""], every)[0]
    return Case(run, f"the logged tokens are {actual}, {expected} are scored since the run began", tuple(same))


def _sums_of(counts: Sequence[int], every: int) -> list[dict[int, float]]:
    """Return the sums of the counts of steps at each log: since the run began, and since the last log."""
    at = range(every, len(counts) + 1, every)
    return [{k: float(sum(counts[:k])) for k in at}, {k: float(sum(counts[k - every : k])) for k in at}]


def falsify_empty_step_adds_nothing(bench: Bench) -> None:
    train, cases = (*equal(2), example(3, 5, 0)), Cases()
    for seed in (1, 2, 3):
        cases |= loss_cases(bench, job(train, batch=1, log_every=3, seed=seed))
    judge(cases)
