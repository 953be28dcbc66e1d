"""Claims about a gradient scaler whose gradient overflows."""

import math
from itertools import pairwise
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import Case, Cases, judge
from pv.suites.training_loop.claims.rates import schedule_of
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.numbers import close
from pv.suites.training_loop.run import Run

WINDOWS = 6


def overflowing(window: int, accumulate: int) -> Job:
    """Return a job of `WINDOWS` windows, in which one gradient is not finite."""
    return job(
        equal(3 * accumulate),
        batch=1,
        epochs=2,
        accumulate=accumulate,
        schedule="linear",
        scaler=True,
        save_every=1,
        overflows=(window * accumulate,),
    )


def require_scale(bench: Bench) -> None:
    """Raise SkipTest if the loop scales no gradient although `job.scaler` is set."""
    _scales(*_growing(bench, 1))


def _growing(bench: Bench, accumulate: int) -> tuple[Run, Run]:
    """Return a run without a scaler, and one of the same steps in which the scale grows."""
    settings = {"batch": 1, "accumulate": accumulate, "epochs": 2}
    plain, scaled = (bench.run(job(equal(6 * accumulate), scaler=on, **settings)) for on in (False, True))
    return plain, scaled


def _scales(plain: Run, scaled: Run) -> list[float]:
    """Return the scale in each step that both runs take. Raise SkipTest if it is always 1."""
    pairs = zip(scaled.steps, plain.steps, strict=False)
    # The loop reports no scale: it is the ratio of the gradients of hidden states with and without a scaler.
    scales = [a.scaled[-1] / b.scaled[-1] for a, b in pairs if a.scaled and b.scaled and b.scaled[-1]]
    if all(close(scale, 1.0) for scale in scales):
        raise SkipTest("`features` has `scaler`, and no gradient is scaled where `job.scaler` is set")
    return scales


def falsify_rate_after_an_overflow(bench: Bench) -> None:
    require_scale(bench)
    cases: Cases = {}
    for accumulate in (1, 2):
        for window in (0, 2):
            run = bench.run(overflowing(window, accumulate))
            cases[f"accumulation {accumulate}, overflow in window {window + 1} of {WINDOWS}"] = _rates_case(bench, run)
    judge(cases)


def _rates_case(bench: Bench, run: Run) -> Case:
    """Check that the steps taken have the first rates of the schedule, and that weights are finite."""
    broken = [name for name, weight in run.weights.items() if not weight.isfinite().all()]
    if broken:
        return Case(run, f"{', '.join(broken)} is not finite at the end", ("a step with an infinite gradient",))
    actual, rate = [step.rate for step in run.steps], schedule_of(bench, run)
    if len(actual) < WINDOWS - 1:
        fault = f"{len(actual)} of {WINDOWS} windows take a step, and one gradient overflows"
        return Case(run, fault, ("a gradient that is not cleared after the skipped step",))
    expected = [rate(k, WINDOWS) for k in range(len(actual))]
    if all(map(close, actual, expected)):
        inside = [scale for step in run.steps for scale in step.scaled]
        seen = len(actual) < WINDOWS or math.inf in inside
        return Case(run, untried="" if seen else "no gradient overflows, although that of a forward is infinite")
    every = [rate(k, WINDOWS) for k in range(WINDOWS + 1)]
    moved = any(all(map(close, actual, every[:k] + every[k + 1 :])) for k in range(WINDOWS + 1))
    causes = ("a schedule that moves on with the skipped step",) if moved else ()
    return Case(run, f"the steps taken have the rates {actual}, not {expected}", causes)


def falsify_scale_grows_evenly(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        cases[f"accumulation {accumulate}"] = _growth_case(*_growing(bench, accumulate))
    judge(cases)


def _growth_case(plain: Run, scaled: Run) -> Case:
    """Check that the scale grows at even intervals; the run without a scaler gives the gradients to divide by."""
    if len(plain.steps) != len(scaled.steps):
        return Case(scaled, f"{len(scaled.steps)} steps are taken, and without a scaler {len(plain.steps)}")
    scales = _scales(plain, scaled)
    grown = [k for k in range(1, len(scales)) if scales[k] > 1.01 * scales[k - 1]]
    if len(grown) < 2:
        raise SkipTest(
            f"in {len(scales)} steps the scale grows {len(grown)} times, which is too rarely: let the adapter set a "
            "growth interval of at most 4 where `job.scaler` is set, or name the claim in `not_claimed`"
        )
    # The scale should grow at even intervals: a shorter one means that the count of good steps was not reset.
    early = [k for last, k in pairwise(grown) if k - last < grown[0]]
    if not early:
        return Case(scaled)
    fault = f"the scale first grows after {grown[0]} steps, and then after the steps {', '.join(map(str, grown[1:]))}"
    return Case(scaled, fault, ("a count of good steps that is not reset when the scale grows",))


def falsify_scale_after_a_cut(bench: Bench) -> None:
    require_scale(bench)
    cases: Cases = {}
    for accumulate in (1, 2):
        uninterrupted = bench.run(overflowing(0, accumulate))
        for k in sorted(uninterrupted.checkpoints)[:-1]:
            name = f"accumulation {accumulate}, cut after step {k}"
            cases[name] = _scale_case(uninterrupted, bench.resume(uninterrupted, k))
    judge(cases)


def _scale_case(uninterrupted: Run, again: Run) -> Case:
    """Return whether a resumed run scales its gradients as the run that was not cut."""
    expected = [scale for step in uninterrupted.steps for scale in step.scaled]
    actual = [scale for step in again.steps for scale in step.scaled]
    if not actual or actual == expected[-len(actual) :]:
        return Case(again)
    if len(actual) > len(expected):
        return Case(
            again, f"the resumed run has {len(actual)} gradients, all of the run that was not cut {len(expected)}"
        )
    k = next(k for k, scale in enumerate(actual) if scale != expected[k - len(actual)])
    right = expected[k - len(actual)]
    times = actual[k] / right if right else math.inf
    fault = f"gradient {k + 1} of the resumed run is {times:.6g} times that of the run that was not cut"
    if k:
        return Case(
            again, fault, ("a count of good steps that is not restored, so that the scale grows at other steps",)
        )
    return Case(again, fault, ("the scale at the start of a run: it is not restored",) if times > 1 else ())
