"""Claims about a gradient scaler whose gradient overflows."""

import math
from itertools import pairwise
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import Cell, Cells, judge
from pv.suites.training_loop.claims.rates import schedule_of
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.numbers import close
from pv.suites.training_loop.run import Run

WINDOWS = 6


def overflowing(window: int, accumulate: int) -> Job:
    """Return a job of `WINDOWS` windows, one of which has a gradient that is not finite."""
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
    """Raise SkipTest if the loop scales no gradient where it is asked to."""
    _scales(*_growing(bench, 1))


def _growing(bench: Bench, accumulate: int) -> tuple[Run, Run]:
    """Return a run without a scaler, and one of the same steps in which the scale grows."""
    settings = {"batch": 1, "accumulate": accumulate, "epochs": 2}
    plain, scaled = (bench.run(job(equal(6 * accumulate), scaler=on, **settings)) for on in (False, True))
    return plain, scaled


def _scales(plain: Run, scaled: Run) -> list[float]:
    """Return the scale in each step that both runs take. Raise SkipTest if it is always 1."""
    pairs = zip(scaled.steps, plain.steps, strict=False)
    scales = [a.scaled[-1] / b.scaled[-1] for a, b in pairs if a.scaled and b.scaled and b.scaled[-1]]
    if all(close(each, 1.0) for each in scales):
        raise SkipTest("`features` has `scaler`, and no gradient is scaled where `job.scaler` is set")
    return scales


def falsify_rate_after_an_overflow(bench: Bench) -> None:
    require_scale(bench)
    cells: Cells = {}
    for accumulate in (1, 2):
        for window in (0, 2):
            run = bench.run(overflowing(window, accumulate))
            cells[f"accumulation {accumulate}, overflow in window {window + 1} of {WINDOWS}"] = _rates_cell(bench, run)
    judge(cells)


def _rates_cell(bench: Bench, run: Run) -> Cell:
    """Return whether the steps that are taken have the first rates of the schedule, and finite weights."""
    broken = [name for name, each in run.weights.items() if not each.isfinite().all()]
    if broken:
        return Cell(run, f"{', '.join(broken)} is not finite at the end", ("a step with an infinite gradient",))
    found, rate = [step.rate for step in run.steps], schedule_of(bench, run)
    if len(found) < WINDOWS - 1:
        fault = f"{len(found)} of {WINDOWS} windows take a step, and one gradient overflows"
        return Cell(run, fault, ("a gradient that is not cleared after the skipped step",))
    wanted = [rate(k, WINDOWS) for k in range(len(found))]
    if all(map(close, found, wanted)):
        inside = [each for step in run.steps for each in step.scaled]
        seen = len(found) < WINDOWS or math.inf in inside
        return Cell(run, untried="" if seen else "no gradient overflows, although that of a forward is infinite")
    every = [rate(k, WINDOWS) for k in range(WINDOWS + 1)]
    moved = any(all(map(close, found, every[:k] + every[k + 1 :])) for k in range(WINDOWS + 1))
    causes = ("a schedule that moves on with the skipped step",) if moved else ()
    return Cell(run, f"the steps taken have the rates {found}, not {wanted}", causes)


def falsify_scale_grows_evenly(bench: Bench) -> None:
    cells: Cells = {}
    for accumulate in (1, 2):
        cells[f"accumulation {accumulate}"] = _growth_cell(*_growing(bench, accumulate))
    judge(cells)


def _growth_cell(plain: Run, scaled: Run) -> Cell:
    """Return whether the scale grows as often later as at first, beside a run of the same steps without a scale."""
    if len(plain.steps) != len(scaled.steps):
        return Cell(scaled, f"{len(scaled.steps)} steps are taken, and without a scaler {len(plain.steps)}")
    scales = _scales(plain, scaled)
    grown = [k for k in range(1, len(scales)) if scales[k] > 1.01 * scales[k - 1]]
    if len(grown) < 2:
        raise SkipTest(
            f"in {len(scales)} steps the scale grows {len(grown)} times, which is too rarely: let the adapter set a "
            "growth interval of at most 4 where `job.scaler` is set, or name the claim in `not_claimed`"
        )
    early = [k for last, k in pairwise(grown) if k - last < grown[0]]
    if not early:
        return Cell(scaled)
    fault = f"the scale first grows after {grown[0]} steps, and then after the steps {', '.join(map(str, grown[1:]))}"
    return Cell(scaled, fault, ("a count of good steps that is not reset when the scale grows",))


def falsify_scale_after_a_cut(bench: Bench) -> None:
    require_scale(bench)
    cells: Cells = {}
    for accumulate in (1, 2):
        straight = bench.run(overflowing(0, accumulate))
        for k in sorted(straight.checkpoints)[:-1]:
            name = f"accumulation {accumulate}, cut after step {k}"
            cells[name] = _scale_cell(straight, bench.resume(straight, k))
    judge(cells)


def _scale_cell(straight: Run, again: Run) -> Cell:
    """Return whether a resumed run scales its gradients as the run that was not cut."""
    wanted = [each for step in straight.steps for each in step.scaled]
    found = [each for step in again.steps for each in step.scaled]
    if not found or found == wanted[-len(found) :]:
        return Cell(again)
    if len(found) > len(wanted):
        return Cell(again, f"the resumed run has {len(found)} gradients, all of the run that was not cut {len(wanted)}")
    k = next(k for k, each in enumerate(found) if each != wanted[k - len(found)])
    right = wanted[k - len(found)]
    times = found[k] / right if right else math.inf
    fault = f"gradient {k + 1} of the resumed run is {times:.6g} times that of the run that was not cut"
    if k:
        return Cell(
            again, fault, ("a count of good steps that is not restored, so that the scale grows at other steps",)
        )
    return Cell(again, fault, ("the scale at the start of a run: it is not restored",) if times > 1 else ())
