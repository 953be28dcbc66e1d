"""Claims about which checkpoint is the best."""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import SkipTest

from torch import Tensor

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.averages import DECAY, Decays, averaged, decays
from pv.suites.training_loop.claims.cases import DIVERGING, EVALUATED, saved_job, unequal
from pv.suites.training_loop.claims.checkpoints import epochs, require_nan
from pv.suites.training_loop.claims.checks import Case, Cases, judge, require
from pv.suites.training_loop.claims.evaluation import TOLERANCE
from pv.suites.training_loop.claims.logs import token_mean
from pv.suites.training_loop.claims.resume import cut_after_every_step
from pv.suites.training_loop.numbers import close
from pv.suites.training_loop.oracle import START, sums
from pv.suites.training_loop.run import Run

STILL = 1e-30
"""A rate at which no float64 weight changes; trainers may refuse 0."""


def best_run(bench: Bench, **settings: Any) -> Run:
    """Return a run with an evaluation and a checkpoint after every step. Raise SkipTest if it reports no evaluation."""
    run = bench.run(saved_job(**_settings(bench) | settings))
    require(run.evaluations, "`evaluations`", "which the best checkpoint is chosen by")
    return run


def _settings(bench: Bench) -> dict[str, Any]:
    """Return settings with which the loss falls and rises."""
    settings: dict[str, Any] = {"train": unequal(8), "evaluated": EVALUATED, "eval_every": 1, "best": True}
    return settings | {"optimizer": "sgd", "schedule": "constant", "rate": 40.0, "dropout": 0.0} | epochs(bench)


def best_case(run: Run, *, tie: bool = False) -> Case:
    """Return whether the best step is one of the least loss, where two are equal the first, if ties are judged."""
    finite = [(step, loss) for step, loss in run.evaluations if not math.isnan(loss)]
    if not finite:
        return Case(run, "there is no evaluation with a finite loss")
    least = min(loss for _, loss in finite)
    right = [step for step, loss in finite if loss == least]
    if run.best == right[0] or (run.best in right and not tie):
        return Case(run)
    losses = ", ".join(f"step {step}: {loss:.6g}" for step, loss in run.evaluations)
    fault = f"the best step is called {run.best}, not {right[0]}; the evaluations are {losses}"
    return Case(run, fault, _causes(run, right))


def _causes(run: Run, right: Sequence[int]) -> tuple[str, ...]:
    losses = dict(run.evaluations)
    mistakes = {
        "none, so nothing is less than the stored best": run.best is None,
        "an evaluation with a NaN loss": run.best in losses and math.isnan(losses[run.best]),
        "the least loss after a NaN, which has replaced the best": run.best == _least_after_nan(run),
        "the last of equal losses, so a tie replaces the best": run.best in right and run.best == right[-1],
        "the last evaluation": len(set(losses.values())) > 1 and run.best == run.evaluations[-1][0],
        "the greatest loss": len(set(losses.values())) > 1
        and run.best in losses
        and losses[run.best] == max(losses.values()),
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def _least_after_nan(run: Run) -> int | None:
    """Return the step of the least loss after the last NaN; None if there is no NaN or nothing after it."""
    broken = [step for step, loss in run.evaluations if math.isnan(loss)]
    later = {step: loss for step, loss in run.evaluations if broken and step > broken[-1]}
    return min(later, key=lambda step: later[step], default=None)


def falsify_best_has_the_least_loss(bench: Bench) -> None:
    cases: Cases = {}
    for seed, rate in ((1, 0.5), (2, 0.5), (1, 40.0), (2, 40.0)):
        cases[f"seed {seed}, rate {rate:g}"] = best_case(best_run(bench, seed=seed, rate=rate))
    judge(cases)
    if all(len({loss for _, loss in case.run.evaluations}) < 2 for case in cases.values()):
        raise SkipTest("no run has evaluations with several losses, of which one is the least")


def falsify_best_step_is_never_nan(bench: Bench) -> None:
    cases: Cases = {}
    for broken in ((0,), (2,), (3, 4)):
        name = f"NaN in evaluation {' and '.join(str(place + 1) for place in broken)}"
        cases[name] = best_case(best_run(bench, nan_evaluations=broken))
        require_nan(cases[name].run)
    judge(cases)


def falsify_first_of_equal_losses_is_best(bench: Bench) -> None:
    run = best_run(bench, rate=STILL)
    judge({"weights that do not change": best_case(run, tie=True)})
    losses = [loss for _, loss in run.evaluations]
    if losses.count(min(losses)) < 2:
        raise SkipTest(f"no two evaluations have the same loss, although the rate is {STILL:g}")


def falsify_best_after_a_cut(bench: Bench) -> None:
    def check(uninterrupted: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        fault = (
            f"the best step is called {again.best}, not {uninterrupted.best}"
            if again.best != uninterrupted.best
            else ""
        )
        later = {step: loss for step, loss in uninterrupted.evaluations if step > k}
        # A run that forgets the best before the cut finds the best after it.
        anew = again.best == min(later, key=lambda step: later[step], default=None)
        forgettable.append(uninterrupted.best is not None and uninterrupted.best <= k and not anew)
        return fault, ("the best after the cut: the least loss before it is forgotten",) if anew and fault else ()

    forgettable: list[bool] = []
    for rate in (40.0, DIVERGING):
        cut_after_every_step(bench, check, **_settings(bench) | {"rate": rate})
        if any(forgettable):
            break
    else:
        raise SkipTest("the best step is never before a cut, so a run that forgets it has the same")


def falsify_best_checkpoint_has_the_best_weights(bench: Bench) -> None:
    averages = (None,) if bench.missing("", ("average",)) else (None, DECAY)
    runs = {f"average {average}": best_run(bench, average=average) for average in averages}
    judge({name: _weights_case(run, decays(bench, run.job)) for name, run in runs.items()})


def _weights_case(run: Run, decay: Decays) -> Case:
    """Return whether the weights of the best checkpoint have the least loss that was reported."""
    least = min((loss for _, loss in run.evaluations), default=math.nan)
    require(run.best_weights, "`best_model`", "`features` has it")
    actual = _loss(run, run.best_weights)
    candidates = _known_weights(run, decay)
    step = next((step for step, loss in run.evaluations if loss == least), 0)
    evaluated = [_loss(run, weights) for (k, _), weights in candidates.items() if k == step]
    # If the reported loss is wrong itself, another claim says so; here its own weights are enough.
    true = any(close(loss, least, TOLERANCE) for loss in evaluated)  # else the fault is that of the reported loss
    if close(actual, least, TOLERANCE) or (not true and any(close(actual, loss, TOLERANCE) for loss in evaluated)):
        return Case(run)
    fault = f"the weights of the best checkpoint have the loss {actual:.6g}; the least reported is {least:.6g}"
    alike = (name for (_, name), weights in candidates.items() if close(_loss(run, weights), actual, TOLERANCE))
    return Case(run, fault, tuple(alike))


def _known_weights(run: Run, decay: Decays) -> dict[tuple[int, str], Mapping[str, Tensor]]:
    """Return the weights after each step, and their running average if the job has one, by step and name."""
    after, beside = [step.weights for step in run.steps], ", not their running average" if run.job.average else ""
    weights_by_step = {(k, f"the weights after step {k}{beside}"): weights for k, weights in enumerate(after, 1)}
    for k in range(1, len(after) + 1) if run.job.average else ():
        weights_by_step[k, f"the running average after step {k}"] = averaged(START, after[:k], decay)
    return weights_by_step


def _loss(run: Run, weights: Mapping[str, Tensor]) -> float:
    return token_mean([sums(weights, run.job.evaluated)])
