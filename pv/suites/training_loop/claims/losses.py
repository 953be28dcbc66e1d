"""Claims about the logged training loss, and about evaluations."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, product
from unittest import SkipTest

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import EVALUATED, EVALUATING, equal, example, unequal
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    expected_decays,
    judge,
    refute,
    require,
    require_forwards,
    require_steps,
    side_effect_cases,
)
from pv.suites.training_loop.claims.data import consumed
from pv.suites.training_loop.diagnosis import logged
from pv.suites.training_loop.features import planned_steps
from pv.suites.training_loop.job import Example, Job
from pv.suites.training_loop.oracle import (
    CLOSE,
    START,
    Sums,
    close,
    matching_numbers,
    running_average,
    sums,
    token_mean,
)
from pv.suites.training_loop.run import Run

LOGGED_TOLERANCE = 1e-4
"""Relative tolerance of a logged loss: some trainers round the loss to four digits."""
# The names of two mistakes in a logged loss.
RESET = "the loss of the steps since the epoch began: the sum since the last log is reset when an epoch starts"
FILTERED = (
    "where an empty step counts as (sum of the steps before it) / (their number + 1), as with "
    "`logging_nan_inf_filter` of transformers"
)


def mean_of_means(parts: Sequence[Sums]) -> float:
    """Return the mean of the means of the parts that have tokens; 0 if no part has tokens."""
    means = [token_mean([part]) for part in parts if part.tokens]
    return sum(means) / max(len(means), 1)


def loss_cases(bench: Bench, job: Job) -> Cases:
    """Run a job, and return a case for every due log: the logged loss must be the token mean since the last log."""
    run = bench.run(job)
    require_forwards(run)
    losses, cases = logged(run.logs, "loss"), Cases()
    require(run.logs, "`logs`", "if the loop logs no loss, name `loss` as missing in `features`")
    for k in range(job.log_every, len(run.steps) + 1, job.log_every):
        case = f"log of step {k} (every {job.log_every}, accumulation {job.accumulate}, seed {job.seed})"
        cases[case] = _loss_case(run, k, losses.get(k))
    return cases


def _loss_case(run: Run, k: int, actual: float | None) -> Case:
    """Compare the logged loss of step k with the mean over all tokens since the last log.

    Args:
        run: The run.
        k: The step, from 1.
        actual: The logged loss; None if there is none.
    """
    steps = [run.batch_sums(i) for i in range(k - run.job.log_every, k)]
    batches = [batch for step in steps for batch in step]
    expected = token_mean(batches)
    if actual is None:
        return Case(run, f"no loss is logged, {expected:.6g} is expected")
    if close(actual, expected, LOGGED_TOLERANCE):
        return Case(run)
    totals = [_sum_total(step) for step in steps]
    mistakes = {
        "the loss of the last step": token_mean(totals[-1:]),
        "the mean of the steps' means": mean_of_means(totals),
        "in bits, not in nats": expected / math.log(2),
        "the sum over the tokens, not divided by their number": sum(batch.nats for batch in batches),
        "the sum of the steps' means": sum(token_mean([step]) for step in totals),
    }
    if any(len(step) > 1 for step in steps):  # otherwise a step and its micro-batch are the same
        mistakes |= {
            "the loss of the last micro-batch": token_mean(batches[-1:]),
            "the mean of the micro-batches' means": mean_of_means(batches),
            "the loss of the last step, as the mean of its micro-batches' means": mean_of_means(steps[-1]),
            "the sum of the micro-batches' means": sum(token_mean([batch]) for batch in batches),
            "the token mean times the micro-batches of the window": expected * len(steps[-1]),
            "the token mean / the micro-batches of the window": expected / max(len(steps[-1]), 1),
        }
    if not all(total.tokens for total in totals):
        means = [token_mean([step]) for step in totals]
        mistakes["the mean of the steps' means, with 0 for empty steps"] = sum(means) / len(means)
        mistakes[f"the mean of the steps' means, {FILTERED}"] = _filtered_mean(totals)
    per_epoch = planned_steps(run.job) // run.job.epochs
    # A loop that resets its sums at the start of each epoch logs a wrong mean if the last log was in an earlier epoch.
    epoch_start, last_log = (k - 1) // per_epoch * per_epoch, k - run.job.log_every
    if epoch_start != last_log:
        name = "the token mean of the epoch so far" if epoch_start < last_log else RESET
        mistakes[name] = token_mean([_sum_total(run.batch_sums(i)) for i in range(epoch_start, k)])
    if k > run.job.log_every:
        whole_run = [_sum_total(run.batch_sums(i)) for i in range(k)]
        mistakes["the summed loss since the last log / the tokens of the whole run"] = (
            _sum_total(batches).nats / _sum_total(whole_run).tokens
        )
        mistakes["the token mean of the whole run"] = token_mean(whole_run)
    fault = f"the logged loss is {actual:.6g}, the token mean is {expected:.6g}"
    if math.isnan(actual) and not all(total.tokens for total in totals):
        return Case(run, fault, ("0/0, the mean of a step without scored tokens",))
    return Case(run, fault, matching_numbers(actual, mistakes, LOGGED_TOLERANCE))


def _filtered_mean(totals: Sequence[Sums]) -> float:
    """Return the mean of the steps' means as transformers computes it with `logging_nan_inf_filter`."""
    total = 0.0
    for done, step in enumerate(totals):
        # In place of a NaN loss, transformers adds tr_loss / (1 + steps since the last log).
        total += token_mean([step]) if step.tokens else total / (done + 1)
    return total / len(totals)


def _sum_total(parts: Sequence[Sums]) -> Sums:
    """Add the losses and the numbers of tokens of several sums. The gradient of the result is empty."""
    return Sums(sum(part.nats for part in parts), sum(part.tokens for part in parts), {})


def falsify_loss_of_a_step(bench: Bench) -> None:
    judge(loss_cases(bench, Job(train=unequal(7), epochs=2)))


def falsify_loss_of_a_window(bench: Bench) -> None:
    judge(
        loss_cases(bench, Job(train=equal(8), accumulate=2))
        | loss_cases(bench, Job(train=unequal(8), accumulate=2))
        | loss_cases(bench, Job(train=unequal(5), batch=1, accumulate=3))
    )


def falsify_loss_since_the_last_log(bench: Bench) -> None:
    every_three = loss_cases(bench, Job(train=equal(8), epochs=2, log_every=3))
    judge(every_three | loss_cases(bench, Job(train=equal(8), epochs=2, log_every=2, accumulate=2)))


def falsify_tokens_since_the_last_log(bench: Bench) -> None:
    judge(loss_cases(bench, Job(train=unequal(7), epochs=2, log_every=3)))


def falsify_logged_tokens(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, every in product((1, 2), (1, 3)):
        run = bench.run(Job(train=unequal(7), epochs=2, accumulate=accumulate, log_every=every))
        cases[f"every {every}, accumulation {accumulate}"] = _tokens_case(run)
    judge(cases)


def _tokens_case(run: Run) -> Case:
    """Check that the logged numbers count the scored tokens since the start of the run, or since the last log."""
    actual = logged(run.logs, "tokens")
    require(actual, "`tokens` in its `logs`", "`features` says that the loop logs tokens")
    steps = [[run.examples(batch) for batch in step.batches] for step in run.steps]
    # The number of tokens of each step. The empty name has the scored tokens; every other name is a known mistake.
    counts: dict[str, list[int]] = {
        "": [sum(example.scored for batch in step for example in batch) for step in steps],
        "the tokens of the last micro-batches alone": [sum(example.scored for example in step[-1]) for step in steps],
        "all tokens but the first of each row, whether scored or not": [
            sum(len(example.tokens) - 1 for batch in step for example in batch) for step in steps
        ],
        "all tokens, whether scored or not": [
            sum(len(example.tokens) for batch in step for example in batch) for step in steps
        ],
        "all positions, padding included": [
            sum(len(batch) * max(len(example.tokens) for example in batch) for batch in step) for step in steps
        ],
        "all positions but the first of each row, padding included": [
            sum(len(batch) * (max(len(example.tokens) for example in batch) - 1) for batch in step) for step in steps
        ],
    }
    # Some loops log the number of tokens after every step, although they log other numbers less often.
    every = 1 if len(actual) == len(run.steps) else run.job.log_every
    matching = [name for name, count in counts.items() if actual in _logged_sums(count, every)]
    if "" in matching:
        return Case(run)
    expected = _logged_sums(counts[""], every)[0]
    return Case(run, f"the logged tokens are {actual}, the scored tokens since the start {expected}", tuple(matching))


def _logged_sums(counts: Sequence[int], every: int) -> list[dict[int, float]]:
    """Return the numbers that a loop may log after every `every` steps, by step.

    Args:
        counts: The number of tokens of each step.
        every: The number of steps between two logs.

    Returns:
        The sums since the start of the run, and the sums since the last log.
    """
    steps = range(every, len(counts) + 1, every)
    return [{k: float(sum(counts[:k])) for k in steps}, {k: float(sum(counts[k - every : k])) for k in steps}]


def falsify_empty_step_adds_nothing(bench: Bench) -> None:
    train, cases = (*equal(2), example(3, 5, 0)), Cases()
    for seed in (1, 2, 3):
        cases |= loss_cases(bench, Job(train=train, batch=1, log_every=3, seed=seed))
    judge(cases)


TRAINING_MODE = "an evaluation in training mode, with dropout"
LOADER_SEED = " (each pass over a DataLoader without its own `generator` draws a seed)"
EVALUATION_TOLERANCE = 1e-5
"""Relative tolerance of an evaluation loss, which trainers may compute in float32."""


def is_same_loss(actual: float, expected: float) -> bool:
    """Return whether two evaluation losses are equal up to `EVALUATION_TOLERANCE`."""
    return close(actual, expected, EVALUATION_TOLERANCE)


def evaluation_case(run: Run, k: int, actual: float) -> Case:
    """Compare the reported loss of the evaluation after step k with the token mean over the evaluated examples."""
    weights, evaluated = run.before(k), run.job.evaluated

    def in_batches(size: int) -> list[tuple[Sums, tuple[Example, ...]]]:
        """Return the evaluated examples in batches of `size`: for each batch, its sums and its examples."""
        parts = [evaluated[i : i + size] for i in range(0, len(evaluated), size)]
        return [(sums(weights, part), part) for part in parts]

    rows, batches = in_batches(1), in_batches(run.job.eval_batch)
    expected = token_mean([row_sums for row_sums, _ in rows])
    if is_same_loss(actual, expected):
        return Case(run)
    by_rows = sum(token_mean([batch_sums]) * len(part) for batch_sums, part in batches) / len(evaluated)
    mistakes = {
        "the mean of the batches' means": mean_of_means([batch_sums for batch_sums, _ in batches]),
        "the mean of the batches' means, weighted by the number of rows": by_rows,
        "the mean of the examples' means": mean_of_means([row_sums for row_sums, _ in rows]),
        "the sum over the tokens / the number of examples": sum(row_sums.nats for row_sums, _ in rows) / len(rows),
        "the sum over the tokens / the number of batches": sum(row_sums.nats for row_sums, _ in rows) / len(batches),
        "in bits, not in nats": expected / math.log(2),
        "the loss of the last batch": token_mean([batches[-1][0]]),
        "the loss of the weights before the last step": token_mean([sums(run.before(k - 1), evaluated)]),
        "the loss of the weights at the start": token_mean([sums(START, evaluated)]),
    }
    if run.average and k == len(run.steps):
        name = "the loss of the running average, which the adapter must turn off if `job.average` is None"
        mistakes[name] = token_mean([sums(run.average, evaluated)])
    fault = f"the reported loss is {actual:.6g}, the token mean is {expected:.6g}"
    causes = matching_numbers(actual, mistakes, EVALUATION_TOLERANCE)
    return Case(run, fault, causes or ((TRAINING_MODE,) if _evaluates_in_training_mode(run) else ()))


def _evaluates_in_training_mode(run: Run) -> bool:
    """Return whether evaluated examples have forwards in training mode that belong to no step, and dropout is on."""
    seen = {*chain(*run.train_without_grad, *run.leftover)}
    return run.job.dropout > 0 and bool(seen.intersection(example.name for example in run.job.evaluated))


def _differs_after(run: Run, k: int, actual: float) -> bool:
    """Return whether an evaluation loss differs from the loss of the weights after step k."""
    rows = [sums(run.before(k), (example,)) for example in run.job.evaluated]
    return not is_same_loss(actual, token_mean(rows))


def evaluation_cases(bench: Bench, eval_batch: int) -> Cases:
    """Run a job with evaluations in batches of `eval_batch` rows, and return a case for each reported evaluation."""
    run = bench.run(replace(EVALUATING, eval_batch=eval_batch))
    evaluations = [(k, loss) for k, loss in run.evaluations if k <= len(run.steps)]
    # A loop that counts steps from 0 reports correct losses under wrong steps. Only TL-EVAL-007, which is about the
    # steps, should fail then, so the steps are corrected here.
    later = [(k + 1, loss) for k, loss in evaluations if (k + 1) % run.job.eval_every == 0 and k < len(run.steps)]
    if later and len(later) == len(evaluations) and not any(_differs_after(run, k, loss) for k, loss in later):
        evaluations = later
    if not evaluations:
        require(not run.evaluated, "`evaluations`", "and forwards in eval mode are seen")
        if len(run.steps) < run.job.eval_every:
            raise SkipTest(f"in {len(run.steps)} steps, no evaluation is due")
        refute(
            f"in {len(run.steps)} steps, no evaluation is reported: one is due every {run.job.eval_every} steps", run
        )
    return {f"batches of {eval_batch}, step {k}": evaluation_case(run, k, loss) for k, loss in evaluations}


def falsify_evaluation_is_the_token_mean(bench: Bench) -> None:
    judge(evaluation_cases(bench, len(EVALUATED)))


def falsify_evaluated_at_the_cadence(bench: Bench) -> None:
    run = bench.run(replace(EVALUATING, eval_batch=len(EVALUATED)))
    require(run.evaluations or not run.evaluated, "`evaluations`", "and forwards in eval mode are seen")
    expected = [*range(2, len(run.steps) + 1, 2)]
    if not expected:
        raise SkipTest(f"in {len(run.steps)} steps, no evaluation is due")
    actual = [k for k, _ in run.evaluations]
    if [k for k in actual if k] != expected:  # an evaluation before the first step is allowed
        mistakes = {
            "one evaluation every 3 steps instead of every 2 steps": [3, 6],
            "one step late": [3, 5],
            "one step early: steps are counted from 0": [1, 3, 5],
            "an evaluation after every step": [1, 2, 3, 4, 5, 6],
            "a count of steps from 0, with an evaluation after the first step": [0, 2, 4],
        }
        causes = tuple(name for name, steps in mistakes.items() if actual == steps)
        due = ", ".join(map(str, expected))
        refute(f"evaluations are reported after the steps {actual}, and are due after {due}", run, causes)


def falsify_batch_size_of_an_evaluation(bench: Bench) -> None:
    cases = evaluation_cases(bench, 1) | evaluation_cases(bench, 2)
    judge(cases)
    sizes = {
        len({*names} & {example.name for example in EVALUATED})
        for case in cases.values()
        for names in case.run.evaluated
    }
    if sizes and min(sizes) == len(EVALUATED):
        hint = "pass `job.eval_batch` to the loop, or name the claim in `not_claimed`"
        raise SkipTest(f"every evaluation has one batch of {len(EVALUATED)} examples instead of 1 or 2: {hint}")


def falsify_evaluation_changes_nothing(bench: Bench) -> None:
    plain = side_effect_cases(bench, replace(EVALUATING, eval_every=1), "eval_every", "evaluations", _count_forwards)
    cases = {name: _with_cause_of_mode(case) for name, case in plain.items()}
    if "average" not in bench.lacks:
        # Without dropout, so that the oracle can compute the gradient of the step after an evaluation.
        with_average = side_effect_cases(
            bench,
            replace(EVALUATING, eval_every=1, average=0.5, rate=40.0, dropout=0.0),
            "eval_every",
            "evaluations",
            _count_forwards,
        )
        cases |= {
            f"with a running average, {name}": _with_cause_of_average(bench, case)
            for name, case in with_average.items()
        }
    judge(cases)


def _count_forwards(run: Run) -> int:
    """Return the number of forwards that are in eval mode or without gradients."""
    return len(run.evaluated) + len(run.train_without_grad)


def _require_evaluations(run: Run, *, between: bool = False) -> None:
    """Raise SkipTest if a run evaluates nothing.

    Args:
        run: The run.
        between: Whether an evaluation between two steps is required.
    """
    if not _count_forwards(run):
        raise SkipTest("no forward in eval mode or without gradients is seen: nothing is evaluated")
    if between and not any(0 < step < len(run.steps) for step, _ in run.evaluations):
        require(run.evaluations, "`evaluations`", "and forwards in eval mode are seen")
        raise SkipTest("no step is taken after an evaluation")


def _with_cause_of_mode(case: Case) -> Case:
    """Return a case with better causes.

    A fault of a run that evaluates in training mode has this mode as its only cause. Otherwise the causes are kept, and
    a hint about loaders is added to the causes that are not about weights.
    """
    if case.fault and _evaluates_in_training_mode(case.run):
        return replace(case, causes=(TRAINING_MODE,))
    # Causes about weights get no hint: a loader without a generator only changes the order and the random numbers.
    causes = (cause if cause.startswith("weights") else f"{cause}{LOADER_SEED}" for cause in case.causes)
    return replace(case, causes=tuple(causes))


def _with_cause_of_average(bench: Bench, case: Case) -> Case:
    """Return the case. If an evaluation left the running average of the weights in the model, this is its cause."""
    run = case.run
    # The step of the first evaluation after a step; some loops evaluate only at the end of an epoch.
    k = next((step for step, _ in run.evaluations if step), 1)
    if not case.fault or len(run.steps) <= k:
        return case
    mean = running_average(START, [step.weights for step in run.steps[:k]], expected_decays(bench, run.job))
    expected = sums(mean, run.examples(run.steps[k].names)).mean
    is_left = difference(run.steps[k].gradient, expected) < max(bench.trainer.tolerance, CLOSE)
    return replace(case, causes=("the running average left in the model after the evaluation",)) if is_left else case


def falsify_training_mode_after_an_evaluation(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        run = bench.run(replace(EVALUATING, accumulate=accumulate))
        _require_evaluations(run, between=True)
        # Some loops also run a training example in eval mode, for example to count operations. So only examples with
        # too few forwards in training mode count. An evaluation of the training data has no gradients.
        used = Counter(consumed(run))
        too_few = {example.name for example in run.job.train if used[example.name] < run.job.epochs}
        names = sorted(too_few.intersection(chain(*run.eval_with_grad)))
        fault = f"the training examples {names} have forwards in eval mode, with gradients" if names else ""
        causes = ("a model that stays in eval mode after an evaluation",)
        cases[f"accumulation {accumulate}"] = Case(run, fault, causes)
    judge(cases)


def falsify_evaluated_examples_are_not_trained_on(bench: Bench) -> None:
    run = bench.run(EVALUATING)
    names = {*chain(*run.order), *chain(*run.leftover)}
    trained = sorted(names.intersection(example.name for example in EVALUATED))
    if trained:
        in_a_step = any(set(step.names) & set(trained) for step in run.steps)
        causes = (
            "a step on evaluated examples: they are in the training data"
            if in_a_step
            else "an evaluation in training mode, with gradients",
        )
        refute(f"the evaluated examples {trained} have forwards in training mode, with gradients", run, causes)
    _require_evaluations(run)
    require_steps(run)


def falsify_each_example_evaluated_once(bench: Bench) -> None:
    run = bench.run(EVALUATING)
    if not run.evaluations:
        _require_evaluations(run)
    names = _without_sanity_check(run)
    # The number of forwards in eval mode of each example. Dropped and repeated examples have other numbers.
    counts = {example.name: names.count(example.name) for example in EVALUATED}
    if len(set(counts.values())) > 1 or counts[EVALUATED[0].name] < len(run.evaluations):
        in_full_batches = len(EVALUATED) // run.job.eval_batch * run.job.eval_batch
        last_batch = [example.name for example in EVALUATED[in_full_batches:]]
        trained = {example.name for example in run.job.train}
        evaluates_others = max(counts.values()) < len(run.evaluations)
        mistakes = {
            "an evaluation of training examples": evaluates_others and {*chain(*run.evaluated)} >= trained,
            TRAINING_MODE: not any(counts.values()) and {*chain(*run.train_without_grad)} >= set(counts),
            "an evaluation without the last, incomplete batch": not evaluates_others
            and [name for name, count in counts.items() if not count] == last_batch,
        }
        causes = tuple(name for name, holds in mistakes.items() if holds)
        fault = f"in {len(run.evaluations)} evaluations, the examples have these numbers of forwards in eval mode"
        refute(f"{fault}: {counts}", run, causes)


def _without_sanity_check(run: Run) -> list[int]:
    """Return the names of the evaluated examples in the order of their forwards in eval mode.

    The forwards of a sanity check before the training are left out.
    """
    evaluated = {example.name for example in EVALUATED}
    names = [name for name in chain(*run.evaluated) if name in evaluated]
    initial = [name for name in chain(*run.evaluated[: run.initial_evaluations]) if name in evaluated]
    # As a sanity check, Lightning evaluates some batches before the training. If the check is not a full evaluation,
    # the number of names is no multiple of the number of examples.
    checked = len(names) % len(EVALUATED)
    return names[checked:] if checked == len(initial) % len(EVALUATED) else names
