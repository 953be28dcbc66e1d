"""Claims about micro-batches whose loss is NaN or infinite."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from unittest import SkipTest

from torch import Tensor

from pv.equations.causes import difference
from pv.equations.causes import ratio as ratio_of
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import Case, Cases, judge
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.oracle import norm, sums
from pv.suites.training_loop.recording import Step, recorder
from pv.suites.training_loop.run import Run

CASES = ((1, 1, math.nan), (1, 0, math.inf), (2, 2, math.nan), (2, 5, math.inf))
"""Micro-batches of a window, and the one, from 0, whose loss is NaN or infinite."""
WINDOWS = 4
SPOILT = "a step with a loss that is not finite"
Gradients = Mapping[str, Tensor]


def falsify_loss_that_is_not_finite(bench: Bench) -> None:
    cases: Cases = {}
    for size, at, loss in CASES:
        if size == 1 or not bench.missing("", ("accumulate",)):
            plain = job(equal(WINDOWS * size), batch=1, accumulate=size)
            name = f"accumulation {size}, loss {loss} in micro-batch {at + 1}"
            cases[name] = _case(bench, bench.run(plain), replace(plain, not_finite=((at, loss),)), at)
    judge(cases)


def _case(bench: Bench, plain: Run, spoiled: Job, at: int) -> Case:
    """Return what is wrong with a run beside one whose losses are finite.

    It may end with an error, if no micro-batch follows a step with such a loss.
    """
    try:
        run = bench.run(spoiled)
    except SkipTest:
        raise
    except (Exception, SystemExit):  # whatever a trainer raises for such a loss; scripts call `sys.exit`
        steps, pending = recorder().steps, recorder().pending
        k, broken = next(_spoiled(steps), (len(steps), []))
        late = k < len(steps) - (not pending)
        return Case(plain, f"{_after(k, broken)}, and the error is raised later", (SPOILT,)) if late else Case(plain)
    batches = [batch for step in run.steps for batch in step.batches] + [*run.leftover]
    if at >= len(batches):
        raise SkipTest(f"micro-batch {at + 1}, whose loss is not finite, was not seen in training mode")
    for k, broken in _spoiled(run.steps):
        return Case(run, _after(k, broken), (SPOILT,))
    ends = [sum(len(step.batches) for step in run.steps[: k + 1]) for k in range(len(run.steps))]
    if not ends or at >= ends[-1]:  # no step after it
        return Case(run)
    index = next(k for k, end in enumerate(ends) if end > at)
    first = ends[index] - len(run.steps[index].batches)
    finite_batches = [batch for i, batch in enumerate(run.steps[index].batches, first) if i != at]
    return _step_case(bench, run, index, finite_batches)


def _spoiled(steps: Sequence[Step]) -> Iterator[tuple[int, list[str]]]:
    """Yield the index of each step after which weights are not finite, and their names."""
    for k, step in enumerate(steps):
        if broken := [name for name, weight in step.weights.items() if not weight.isfinite().all()]:
            yield k, broken


def _after(k: int, names: Sequence[str]) -> str:
    return f"after step {k + 1}, {', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite"


def _step_case(bench: Bench, run: Run, k: int, finite_batches: Sequence[tuple[int, ...]]) -> Case:
    """Return whether the step at index k has the gradient of the last ones of the micro-batches with a finite loss.

    If the step of the window was left out, those after it alone are of this step.
    """
    step = run.steps[k]
    for start in range(len(finite_batches)):
        if difference(step.gradient, _mean(run, k, finite_batches[start:])) < bench.trainer.tolerance:
            return Case(run)
    fault = (
        f"step {k + 1} has a gradient of norm {norm(step.gradient):.6g}, which is not that of the token mean over its "
        "micro-batches with a finite loss"
    )
    return Case(run, fault, _causes(bench, run, k, finite_batches))


def _mean(run: Run, k: int, batches: Sequence[tuple[int, ...]]) -> Gradients:
    total = sums(run.before(k), run.named(name for batch in batches for name in batch))
    return {name: tensor / max(total.tokens, 1) for name, tensor in total.gradient.items()}


def _causes(bench: Bench, run: Run, k: int, finite_batches: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    if not finite_batches:
        return ("a step for a window without a finite loss, which is counted",)
    means = (_mean(run, k, finite_batches[start:]) for start in range(len(finite_batches)))
    ratios = [ratio_of(run.steps[k].gradient, mean, bench.trainer.tolerance) for mean in means]
    part = any(ratio is not None and 0 < ratio < 1 for ratio in ratios)
    return ("divided by the tokens of all micro-batches, also of the one that is left out",) if part else ()
