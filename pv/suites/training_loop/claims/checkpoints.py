"""Claims about checkpoints: when they are saved and removed, the best checkpoint, and the average of the weights."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from unittest import SkipTest

from torch import Tensor

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import DIVERGING, EVALUATED, SAVED, unequal
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    due_checkpoints,
    expected_decays,
    judge,
    on_disk,
    refute,
    require,
    require_steps,
    side_effect_cases,
    with_several_saves,
)
from pv.suites.training_loop.claims.losses import is_same_loss
from pv.suites.training_loop.claims.resume import cut_after_every_step
from pv.suites.training_loop.diagnosis import end_difference
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.oracle import (
    CLOSE,
    START,
    Decays,
    Weights,
    matching_arrays,
    running_average,
    sums,
    token_mean,
)
from pv.suites.training_loop.run import Run


def falsify_saving_changes_nothing(bench: Bench) -> None:
    judge(side_effect_cases(bench, SAVED, "save_every", "checkpoints", _count_saved))


def _count_saved(run: Run) -> int:
    """Return the number of files in the directory of a run; without files, the number of reported checkpoints."""
    return sum(path.is_file() for path in run.job.directory.rglob("*")) or len(on_disk(run))


def falsify_saved_at_the_cadence(bench: Bench) -> None:
    run = bench.run(replace(SAVED, save_every=2))
    actual, expected = on_disk(run), due_checkpoints(bench, run)
    if not expected:
        raise SkipTest(f"in {len(run.steps)} steps, no checkpoint is due")
    # Checkpoints that are not due are faults only in the steps 1 and 3: a loop may also save at the end of the run.
    if not set(actual) >= set(expected) or {1, 3} & set(actual):
        mistakes = {
            "a first checkpoint at twice the cadence": actual == [4, 6, 8],
            "one step late": {3, 5, 7} <= set(actual),
            "one step early: steps are counted from 0": {1, 3, 5, 7} <= set(actual),
            "a checkpoint where an epoch ends": actual == [4, 8],
        }
        causes = tuple(name for name, holds in mistakes.items() if holds)
        refute(f"checkpoints of the steps {actual}, not of {', '.join(map(str, expected))}", run, causes)


def falsify_rotation_keeps_the_newest(bench: Bench) -> None:
    cases: Cases = {}
    # The last run has 21 steps, so that sorting names as text gives another order: 10 before 9.
    for keep, batch in ((1, 2), (2, 2), (2, 1)):
        run = bench.run(replace(SAVED, keep=keep, batch=batch, epochs=3))
        actual, due = on_disk(run), due_checkpoints(bench, run)
        if len(due) <= keep:
            continue  # rotation removes no checkpoint
        fault = "" if actual == due[-keep:] else f"checkpoints of the steps {actual}, not of {due[-keep:]}"
        causes = _causes_of_rotation(due, actual, keep) if fault else ()
        cases[f"keep {keep} of {len(due)}"] = Case(run, fault, causes)
    judge(cases)


def _causes_of_rotation(due: list[int], actual: list[int], keep: int) -> tuple[str, ...]:
    """Return the known mistakes of rotation that leave exactly the checkpoints of the steps `actual`.

    Args:
        due: The steps of all checkpoints that were due.
        actual: The steps of the checkpoints on disk.
        keep: The number of checkpoints to keep.
    """
    mistakes = {
        "one checkpoint more than requested": due[-keep - 1 :],
        "the checkpoints whose names sort last as text": sorted(sorted(due, key=str)[-keep:]),
        "the oldest checkpoints": due[:keep],
        "all checkpoints": due,
        "one checkpoint less than requested": due[len(due) - keep + 1 :],
    }
    return tuple(name for name, steps in mistakes.items() if actual == steps)


def falsify_rotation_keeps_the_best(bench: Bench) -> None:
    cases: Cases = {}
    for seed, rate in ((1, 0.5), (2, 0.5), (1, 40.0), (2, 40.0), (1, DIVERGING)):
        run = bench.run(replace(best_job(bench), keep=2, seed=seed, rate=rate))
        cases[f"seed {seed}, rate {rate:g}"] = _best_and_newest_case(run)
    judge(cases)
    if all(_best_evaluation(case.run)[0] in due_checkpoints(bench, case.run)[-2:] for case in cases.values()):
        raise SkipTest("the best checkpoint is always one of the newest, so it is kept in any case")


def falsify_best_is_never_nan(bench: Bench) -> None:
    cases: Cases = {}
    for broken in ((0,), (2,), (3, 4)):
        run = bench.run(replace(best_job(bench), keep=2, nan_evaluations=broken))
        require_nan(run)
        cases[f"NaN in evaluation {' and '.join(str(place + 1) for place in broken)}"] = _best_and_newest_case(run)
    judge(cases)


def require_nan(run: Run) -> None:
    """Raise SkipTest if a run reports no evaluation with a NaN loss, although the model returned one."""
    require(run.evaluations, "`evaluations`", "which the best checkpoint is chosen by")
    if not any(math.isnan(loss) for _, loss in run.evaluations):
        raise SkipTest("no evaluation with a NaN loss is reported, although the model returns NaN in an evaluation")


def _best_evaluation(run: Run) -> tuple[int, float]:
    """Return the step and the loss of the evaluation with the smallest loss, except NaN. Raise SkipTest without one."""
    finite = [evaluation for evaluation in run.evaluations if not math.isnan(evaluation[1])]
    require(finite, "evaluation with a finite loss", "which the best checkpoint is chosen by")
    return min(finite, key=lambda evaluation: evaluation[1])


def _best_and_newest_case(run: Run) -> Case:
    """Check that a run keeps the best checkpoint beside the newest ones."""
    fault, actual = _best_and_newest_fault(run), on_disk(run)
    nan_steps = {step for step, loss in run.evaluations if math.isnan(loss)}
    mistakes = {
        "the checkpoint of an evaluation with a NaN loss in place of the best": bool(nan_steps & set(actual[:-2])),
        "only the newest checkpoints: the best checkpoint is removed when it is old": actual
        == [*range(1, len(run.steps) + 1)][-len(actual) :],
    }
    return Case(run, fault, tuple(name for name, holds in mistakes.items() if fault and holds))


def _best_and_newest_fault(run: Run) -> str:
    """Return the fault of the checkpoints on disk in a run whose `job.keep` is 2; "" if there is none."""
    actual, last = on_disk(run), len(run.steps)
    best, loss = _best_evaluation(run)
    if best not in actual:
        return f"the best step is {best} with loss {loss:.6g}, and only the steps {actual} have checkpoints"
    if last not in actual:
        return f"the newest step is {last}, and only the steps {actual} have checkpoints"
    # A trainer may keep the best checkpoint in addition to the two newest.
    return f"{len(actual)} checkpoints are kept, of the steps {actual}; 2 are requested" if len(actual) > 3 else ""


DECAY = 0.75
"""The decay of the running average in the jobs of these claims."""


def job_decay(done: int) -> float:
    """Return `DECAY` for any number of earlier updates."""
    return DECAY


def _mistaken_averages(run: Run, decay: Decays) -> dict[str, Weights]:
    """Return the averages that known mistakes give, by description of the mistake."""
    # Most mistakes average another sequence of weights; the others have another start or decay. Weights change only in
    # a step, so an average that is updated after an earlier micro-batch of the step gets the weights before the step.
    after, before = [step.weights for step in run.steps], [run.before(k) for k in range(len(run.steps))]
    after_by_batch = [step.weights for step in run.steps for _ in step.batches]
    before_by_batch = [run.before(k) for k, step in enumerate(run.steps) for _ in step.batches]
    current: list[Weights] = []  # the weights after each micro-batch
    before_and_after: list[Weights] = []  # the weights before the step for each micro-batch, then those after the step
    for k, step in enumerate(run.steps):
        current += [*(run.before(k) for _ in step.batches[1:]), step.weights]
        before_and_after += [*(run.before(k) for _ in step.batches), step.weights]
    return {
        "updated with every micro-batch, and after the step once more": running_average(START, before_and_after, decay),
        "updated with every micro-batch, before the step": running_average(START, before_by_batch, decay),
        "the average of the weights before each step, so it is updated before the step": running_average(
            START, before, decay
        ),
        "the average with the factors of old and new exchanged": running_average(START, after, lambda k: 1 - decay(k)),
        "updated with every micro-batch": running_average(START, after_by_batch, decay),
        "updated with every micro-batch, also those that no step follows": running_average(START, current, decay),
        "the average that starts with the weights after the first step": running_average(after[0], after[1:], decay),
        "the average with a decay that warms up as (1 + n) / (10 + n): if intended, declare it as `expected_decay`": (
            running_average(START, after, lambda k: min(decay(k), (1 + k) / (10 + k)))
        ),
        "the average with the larger of the decay and (1 + n) / (10 + n), but a warm-up needs the smaller": (
            running_average(START, after, lambda k: max(DECAY, (1 + k) / (10 + k)))
        ),
        "the average with the constant decay of the job, without a warm-up": running_average(START, after, job_decay),
        "the average with the decay of the first update": running_average(START, after, lambda _: decay(0)),
        "the weights at the start: it is never updated": START,
        f"the weights at the end: {_cause_of_no_average(run)}": run.weights,
    }


def _cause_of_no_average(run: Run) -> str:
    """Return the reason why the average equals the weights, as far as it can be observed."""
    if run.shared:
        return "the average shares the storage of the weights, so nothing is averaged (copy the weights at the start)"
    return "nothing is averaged: the average may share their storage (a `clone` is missing), or the decay may be 0"


def falsify_average_of_the_weights(bench: Bench) -> None:
    cases: Cases = {}
    allowed = max(bench.trainer.tolerance, CLOSE)
    for accumulate in (1, 2):
        run = bench.run(replace(SAVED, accumulate=accumulate, dropout=0.0, average=DECAY))
        require(run.average, "`average`", "`features` has it")
        require_steps(run)
        decay = expected_decays(bench, run.job)
        off = difference(run.average, running_average(START, [step.weights for step in run.steps], decay))
        fault = f"after {len(run.steps)} steps the average is off by {off:.2g} of the largest weight"
        causes = matching_arrays(run.average, _mistaken_averages(run, decay), allowed)
        cases[f"accumulation {accumulate}"] = Case(run, fault, causes) if off > allowed else Case(run)
    judge(cases)


def falsify_average_after_a_cut(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> tuple[str, tuple[str, ...]]:
        require(uninterrupted.average, "`average`", "`features` has it")
        differing = end_difference(resumed, uninterrupted, k, "average")
        later = [step.weights for step in uninterrupted.steps[k:]]
        starts = {
            "an average that starts anew with the weights of the checkpoint": uninterrupted.steps[k - 1].weights,
            "an average that starts anew with the weights at the start": START,
        }
        decay = expected_decays(bench, uninterrupted.job)
        averages = {name: running_average(start, later, decay, k) for name, start in starts.items()}
        saved = running_average(START, [step.weights for step in uninterrupted.steps[:k]], decay)
        averages["the average of the checkpoint with the decays of a new run: the count of updates is not restored"] = (
            running_average(saved, later, decay)
        )
        causes = matching_arrays(resumed.average, averages, CLOSE)
        return f"average at the end: {differing}" if differing else "", causes

    cut_after_every_step(bench, check, replace(SAVED, dropout=0.0, average=DECAY))


TINY_RATE = 1e-30
"""A learning rate so small that no float64 weight changes; trainers may refuse a rate of 0."""


def best_run(bench: Bench, job: Job) -> Run:
    """Return the run of a job with a best checkpoint. Raise SkipTest if it reports no evaluation."""
    run = bench.run(job)
    require(run.evaluations, "`evaluations`", "which the best checkpoint is chosen by")
    return run


def best_job(bench: Bench) -> Job:
    """Return a job with an evaluation and a checkpoint after every step, whose evaluation loss falls and rises."""
    job = replace(SAVED, train=unequal(8), evaluated=EVALUATED, eval_every=1, best=True)
    return with_several_saves(bench, replace(job, optimizer="sgd", schedule="constant", rate=40.0, dropout=0.0))


def best_case(run: Run, *, tie: bool = False) -> Case:
    """Check that the best step is a step with the smallest evaluation loss.

    Args:
        run: The run.
        tie: Whether the best step must be the first of the steps with the smallest loss.
    """
    finite = [(step, loss) for step, loss in run.evaluations if not math.isnan(loss)]
    if not finite:
        return Case(run, "there is no evaluation with a finite loss")
    least = min(loss for _, loss in finite)
    best_steps = [step for step, loss in finite if loss == least]
    if run.best == best_steps[0] or (run.best in best_steps and not tie):
        return Case(run)
    losses = ", ".join(f"step {step}: {loss:.6g}" for step, loss in run.evaluations)
    fault = f"the best step is called {run.best}, not {best_steps[0]}; the evaluations are {losses}"
    return Case(run, fault, _causes_of_best(run, best_steps))


def _causes_of_best(run: Run, best_steps: Sequence[int]) -> tuple[str, ...]:
    """Return the known mistakes that give the best step of a run; `best_steps` are the steps with the least loss."""
    losses = dict(run.evaluations)
    mistakes = {
        "no step: the initial best loss is never replaced": run.best is None,
        "an evaluation with a NaN loss": run.best in losses and math.isnan(losses[run.best]),
        "the least loss after a NaN: the NaN has replaced the best loss": run.best == _least_after_nan(run),
        "the last of equal losses, so a tie replaces the best": run.best in best_steps and run.best == best_steps[-1],
        "the last evaluation": len(set(losses.values())) > 1 and run.best == run.evaluations[-1][0],
        "the greatest loss": len(set(losses.values())) > 1
        and run.best in losses
        and losses[run.best] == max(losses.values()),
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def _least_after_nan(run: Run) -> int | None:
    """Return the step of the smallest loss after the last NaN; None if there is no NaN, or no evaluation after it."""
    nan_steps = [step for step, loss in run.evaluations if math.isnan(loss)]
    later = {step: loss for step, loss in run.evaluations if nan_steps and step > nan_steps[-1]}
    return min(later, key=lambda step: later[step], default=None)


def falsify_best_has_the_least_loss(bench: Bench) -> None:
    cases: Cases = {}
    for seed, rate in ((1, 0.5), (2, 0.5), (1, 40.0), (2, 40.0)):
        job = replace(best_job(bench), seed=seed, rate=rate)
        cases[f"seed {seed}, rate {rate:g}"] = best_case(best_run(bench, job))
    judge(cases)
    if all(len({loss for _, loss in case.run.evaluations}) < 2 for case in cases.values()):
        raise SkipTest("no run has evaluations with different losses, so every step is the best")


def falsify_best_step_is_never_nan(bench: Bench) -> None:
    cases: Cases = {}
    for broken in ((0,), (2,), (3, 4)):
        name = f"NaN in evaluation {' and '.join(str(place + 1) for place in broken)}"
        cases[name] = best_case(best_run(bench, replace(best_job(bench), nan_evaluations=broken)))
        require_nan(cases[name].run)
    judge(cases)


def falsify_first_of_equal_losses_is_best(bench: Bench) -> None:
    run = best_run(bench, replace(best_job(bench), rate=TINY_RATE))
    judge({"weights that do not change": best_case(run, tie=True)})
    losses = [loss for _, loss in run.evaluations]
    if losses.count(min(losses)) < 2:
        raise SkipTest(f"no two evaluations have the same loss, although the rate is {TINY_RATE:g}")


def falsify_best_after_a_cut(bench: Bench) -> None:
    # For each cut: whether a run that forgets the best step before the cut would report another one.
    shows_forgetting: list[bool] = []

    def check(uninterrupted: Run, resumed: Run, k: int) -> tuple[str, tuple[str, ...]]:
        expected = uninterrupted.best
        later = {step: loss for step, loss in uninterrupted.evaluations if step > k}
        is_best_of_later = resumed.best == min(later, key=lambda step: later[step], default=None)
        shows_forgetting.append(expected is not None and expected <= k and not is_best_of_later)
        if resumed.best == expected:
            return "", ()
        causes = ("the best after the cut: the least loss before the cut is forgotten",) if is_best_of_later else ()
        return f"the best step is called {resumed.best}, not {expected}", causes

    # With the first rate, the best step may come after every cut; with the second, the first checkpoint is the best.
    for rate in (40.0, DIVERGING):
        cut_after_every_step(bench, check, replace(best_job(bench), rate=rate))
        if any(shows_forgetting):
            break
    else:
        raise SkipTest("the best step never comes before a cut, so a run that forgets the best step gives the same")


def falsify_best_checkpoint_has_the_best_weights(bench: Bench) -> None:
    averages = (None,) if "average" in bench.lacks else (None, DECAY)
    runs = {f"average {average}": best_run(bench, replace(best_job(bench), average=average)) for average in averages}
    judge({name: _weights_case(run, expected_decays(bench, run.job)) for name, run in runs.items()})


def _weights_case(run: Run, decay: Decays) -> Case:
    """Check that the weights of the best checkpoint have the smallest loss that the run reports."""
    least = min((loss for _, loss in run.evaluations), default=math.nan)
    require(run.best_weights, "`best_model`", "`features` has it")
    actual = _loss(run, run.best_weights)
    candidates = _candidate_weights(run, decay)
    best_step = next((step for step, loss in run.evaluations if loss == least), 0)
    losses_of_step = [_loss(run, weights) for (k, _), weights in candidates.items() if k == best_step]
    # If the reported loss itself is wrong, another claim fails: here, accept the loss of the weights of that step.
    reported_correctly = any(is_same_loss(loss, least) for loss in losses_of_step)
    accepted = [least] if reported_correctly else [least, *losses_of_step]
    if any(is_same_loss(actual, loss) for loss in accepted):
        return Case(run)
    fault = f"the weights of the best checkpoint have the loss {actual:.6g}; the least reported loss is {least:.6g}"
    causes = (name for (_, name), weights in candidates.items() if is_same_loss(_loss(run, weights), actual))
    return Case(run, fault, tuple(causes))


def _candidate_weights(run: Run, decay: Decays) -> dict[tuple[int, str], Mapping[str, Tensor]]:
    """Return the weights after each step, and their running average if the job has one; by step and description."""
    after, contrast = [step.weights for step in run.steps], ", not their running average" if run.job.average else ""
    weights_by_step = {(k, f"the weights after step {k}{contrast}"): weights for k, weights in enumerate(after, 1)}
    for k in range(1, len(after) + 1) if run.job.average else ():
        weights_by_step[k, f"the running average after step {k}"] = running_average(START, after[:k], decay)
    return weights_by_step


def _loss(run: Run, weights: Mapping[str, Tensor]) -> float:
    """Return the evaluation loss that the oracle computes for the weights."""
    return token_mean([sums(weights, run.job.evaluated)])
