"""What the tests of the claims share: cases with their faults and causes, and their judgement.

A test runs several cases, such as accumulations, and collects a `Case` for each. `judge` raises with the case whose
cause explains most failing cases, and lists the others.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, TypeAlias, TypeVar
from unittest import SkipTest

from pv.equations.causes import difference
from pv.errors import KnownCause
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.diagnosis import different, explain_difference, first_difference, table
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.mistakes import LIMITS, explain_gradient, gradient_ratio, scale_of
from pv.suites.training_loop.oracle import Decays, norm
from pv.suites.training_loop.run import Run


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a test."""

    run: Run
    # The fault; "" if there is none.
    fault: str = ""
    # The known mistakes that give exactly this fault.
    causes: tuple[str, ...] = ()
    # Printed where no cause is known.
    hint: str = ""
    # The reason why the run of the case cannot judge the claim; "" if it can.
    untried: str = ""


K = TypeVar("K")
COARSE = 2.0**-6
"""Four roundings to bfloat16, relative: a smaller difference may be one of precision."""
PRECISION = (
    "; rounding alone gives so small a difference where something is computed in another dtype (to bfloat16, up to "
    "0.004 each time): if the loop is to compute in that dtype, the adapter raises `tolerance`"
)
Cases: TypeAlias = dict[str, Case]


def require(reported: object, feature: str, hint: str) -> None:
    """Raise SkipTest if an adapter has not reported something at all: that says nothing of the trainer."""
    if not reported:
        raise SkipTest(f"the adapter reports no {feature}; {hint}")


def require_steps(*runs: Run) -> None:
    """Raise SkipTest if no run takes a step: then nothing was tried."""
    if not any(run.steps for run in runs):
        raise SkipTest("no step is taken, so nothing can be judged")


def require_forwards(run: Run) -> None:
    """Raise SkipTest if a step follows no forward in training mode: what it should be is not known."""
    if without := [k for k, step in enumerate(run.steps, 1) if not step.batches]:
        mode = ": the training examples have theirs in eval mode" if trains_in_eval_mode(run) else ""
        raise SkipTest(f"no forward in training mode was seen before step {without[0]}{mode}")


def require_rate(bench: Bench, run: Run) -> None:
    """Raise SkipTest if the first step has the rate 0 by a schedule of the loop's own: then it changes nothing."""
    expected = getattr(bench.trainer, "expected_rate", None)
    documented = "schedule" in bench.lacks or (expected is not None and not expected(run.job, 0, len(run.steps)))
    if run.steps and not run.steps[0].rate and documented:
        raise SkipTest("the first step has the rate 0 by the schedule of the loop")


def trains_in_eval_mode(run: Run) -> bool:
    """Return whether there are steps without a forward in training mode, and training examples in eval mode."""
    trained, blind = {example.name for example in run.job.train}, any(not step.batches for step in run.steps)
    return blind and any(trained & set(names) for names in run.graded)


def refute(fault: str, run: Run, causes: tuple[str, ...] = (), rest: str = "") -> NoReturn:
    """Show the steps of a run, and raise AssertionError; `KnownCause` if there are causes. rest: follows them."""
    print(table(run))  # noqa: T201  # a report shows what the failing example has printed
    message = f"{fault}{format_causes(causes)}{rest}"
    raise KnownCause(message) if causes else AssertionError(message)


MANY = 4
"""From this number of failing cases on, a cause that only one of them has is not believed."""


def judge(cases: Cases, unexplained: str = "") -> None:
    """Refute the claim if a case has a fault: explain the case whose cause most failing cases share.

    unexplained: a hint where no cause is known and the case has none. Raise SkipTest if there is no case, or one that
    was not tried.
    """
    if not cases:
        raise SkipTest("no case of the claim can be tried: no run of the loop has a step or a checkpoint it is about")
    failed = {name: case for name, case in cases.items() if case.fault}
    if not failed:
        if untried := {name: case.untried for name, case in cases.items() if case.untried}:
            name = next(iter(untried))
            raise SkipTest(f"{name}: {untried[name]}")
        return
    name, causes = most_informative({name: case.causes for name, case in failed.items()})
    # All failing cases are listed, so that a user sees whether accumulation matters.
    which = "all" if len(failed) == len(cases) else "; ".join(failed)
    share = f" ({len(failed)} of {len(cases)} cases fail: {which})" if len(cases) > 1 else ""
    hint = "" if causes else failed[name].hint or unexplained
    refute(f"{name}: {failed[name].fault}", failed[name].run, causes, f"{hint}{share}")


def most_informative(cases: Mapping[K, Sequence[str]]) -> tuple[K, tuple[str, ...]]:
    """Return the case whose causes most cases share, with the fewest causes among equals, and these causes.

    A cause that a single one of at least `MANY` cases has is a coincidence.
    """
    if len(cases) >= MANY and sum(map(bool, cases.values())) == 1:
        return next(iter(cases)), ()
    # The true cause appears in every failing case; an accidental match appears in few.
    times = Counter(cause for causes in cases.values() for cause in dict.fromkeys(causes))

    def most(causes: Sequence[str]) -> int:
        return max((times[cause] for cause in causes), default=0)

    name = min(cases, key=lambda case: (-most(cases[case]), len(cases[case])))
    return name, tuple(cause for cause in cases[name] if times[cause] == most(cases[name]))


def format_causes(causes: tuple[str, ...]) -> str:
    """Return "; it is A, or B"; "" if there is no cause."""
    return f"; it is {', or '.join(causes)}" if causes else ""


def unchanged(bench: Bench, with_it: Job, off: str, name: str, count: Callable[[Run], int]) -> Cases:
    """Return a case for each accumulation: the run must equal, bit for bit, the run in which the cadence `off` is 0.

    count: of what a run shows of it. Where there is no more of it than in the other run, two runs are compared that do
    not differ in what the claim is about.
    """
    cases: Cases = {}
    for accumulate in (1, 2):
        job = replace(with_it, accumulate=accumulate)
        without = replace(job, save_every=0) if off == "save_every" else replace(job, eval_every=0)
        run, plain = bench.run(job), bench.run(without)
        same = run.order == plain.order and not different(run.weights, plain.weights)
        # Equal runs prove nothing if the adapter ignored the setting.
        if same and not (run.steps and count(run) > count(plain)):
            why = f"the run where `job.{off}` is 0 has as many {name} as the one where it is {getattr(job, off)}"
            hint = f"let the adapter make none where it is 0, and some where it is not ({count(run)} are seen)"
            cases[f"accumulation {accumulate}"] = Case(run, untried=f"{why}, or no step is taken: {hint}")
            continue
        fault = "" if same else f"beside the run without {name}, {first_difference(run, plain)}"
        beside = off != "eval_every" and len(run.evaluated) > len(plain.evaluated)
        changing = f"the evaluations that come with {name}" if beside else name
        causes = (f"{explain_difference(run, plain)} that {changing} change",) if fault else ()
        cases[f"accumulation {accumulate}"] = Case(run, fault, causes)
    return cases


def gradient_case(bench: Bench, run: Run, k: int) -> Case:
    """Return how the gradient at index k differs from that of the token mean over the examples since the last step."""
    step, tolerance = run.steps[k], bench.trainer.tolerance
    if not step.batches:
        causes = ("a training in eval mode",) if trains_in_eval_mode(run) else ()
        return Case(run, "the optimizer steps without a forward in training mode since the last step", causes)
    # The oracle computes the token mean at the weights before the step, over exactly the examples that the step used.
    expected = run.sums(k).mean
    off = difference(step.gradient, expected)
    if off < tolerance:
        return Case(run)
    scored = [[example.scored for example in run.named(batch)] for batch in step.batches]
    ratio = gradient_ratio(run, k, tolerance)
    # The loop may clip at its default limit, which the adapter has not turned off: no fault of the mean.
    if ratio is not None and 0 < ratio < 1 and "clip" in bench.lacks and scale_of(run, k) is None:
        _skip_clipped(norm(step.gradient))
    length = f"is {ratio:.6g} times" if ratio is not None else f"differs by {off:.2g} of the largest element from"
    fault = (
        f"on the examples {[list(batch) for batch in step.batches]} with {scored} scored tokens, the gradient (norm "
        f"{norm(step.gradient):.6g}) {length} that of the token mean (norm {norm(expected):.6g})"
    )
    return Case(run, fault, explain_gradient(run, k, tolerance), PRECISION if off < COARSE else "")


def _skip_clipped(length: float) -> None:
    """Raise SkipTest if a gradient that is too short has the length of a usual limit."""
    if any(math.isclose(length, limit, rel_tol=1e-4) for limit in LIMITS):
        hint = "hand `job.clip` to it (None is no limit), and do not name `clip` as missing in `features`"
        raise SkipTest(f"the gradient has the norm {length:.3g}, as of a loop that clips at a limit of its own: {hint}")


def gradient_cases(bench: Bench, run: Run, which: Callable[[int, int], bool] = lambda taken, planned: True) -> Cases:
    """Return a case for the first faulty gradient of a run, among the steps that `which(taken, planned)` selects.

    There is no case if the run has no such step.
    """
    job, taken = run.job, [len(step.batches) for step in run.steps]
    cases = [gradient_case(bench, run, k) for k, size in enumerate(taken) if which(size, job.accumulate)]
    faults = {k: case for k, case in enumerate(cases, 1) if case.fault}
    name = f"{len(job.train)} examples, batch {job.batch}, accumulation {job.accumulate}, seed {job.seed}"
    if not faults:
        return {name: Case(run)} if cases else {}
    k, causes = most_informative({name: case.causes for name, case in faults.items()})
    return {f"{name}, {len(faults)} of {len(cases)} steps": replace(faults[k], causes=causes)}


FEW_SAVES = 6
"""Epochs that leave checkpoints to remove, and a best one that is not among the newest, if each epoch has only one."""


def with_saves(bench: Bench, job: Job, epochs: int = FEW_SAVES) -> Job:
    """Return a job with several checkpoints: with more epochs for a trainer that evaluates and saves at their ends."""
    return replace(job, epochs=epochs) if "cadence" in bench.lacks else job


def on_disk(run: Run) -> list[int]:
    """Return the steps of the checkpoints that exist."""
    return sorted(step for step, path in run.checkpoints.items() if path.exists())


def due(bench: Bench, run: Run) -> list[int]:
    """Return the steps after which a checkpoint is due: where epochs end, if the trainer has no other cadence.

    There are none if a step spans two epochs, as the micro-batches that are left over at the end show.
    """
    # Without a cadence in steps, checkpoints are due where epochs end: every `len(steps) / epochs` steps.
    ends = "cadence" in bench.lacks
    if ends and (run.leftover or len(run.steps) % run.job.epochs):
        return []
    every = len(run.steps) // run.job.epochs if ends else run.job.save_every
    return [*range(every, len(run.steps) + 1, every)] if every else []


def decays(bench: Bench, job: Job) -> Decays:
    """Return the decays that a trainer documents; a constant one if it says nothing."""
    expected_decay: Callable[[Job, int], float] | None = getattr(bench.trainer, "expected_decay", None)
    return (lambda done: expected_decay(job, done)) if expected_decay is not None else lambda _: job.average or 0.0
