"""The cases of a claim, their judgement, and the conditions under which a claim is skipped.

The test of a claim tries several cases, such as several accumulations, and collects a `Case` for each. `judge` reports
the failing case whose cause explains most failing cases, and lists the other failing cases.
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
from pv.suites.training_loop.diagnosis import differing_tensors, explain_difference, first_difference, table
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.mistakes import LIMITS, explain_gradient, gradient_ratio, scale_of
from pv.suites.training_loop.oracle import Decays, norm
from pv.suites.training_loop.run import Run


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a test."""

    run: Run
    # The observed value and the correct one, if they differ; "" if the claim holds in this case.
    fault: str = ""
    # The known mistakes that give exactly this fault.
    causes: tuple[str, ...] = ()
    # Added to the message if no cause is known.
    hint: str = ""
    # The reason why the run does not show whether the claim holds; "" if the run shows it.
    untried: str = ""


K = TypeVar("K")
BFLOAT16_ERROR = 2.0**-6
"""Relative error of four roundings to bfloat16. A smaller difference of gradients may come from low precision."""
PRECISION_HINT = (
    "; rounding alone gives such a difference if a tensor is converted to another dtype (to bfloat16: up to 0.004 for "
    "each conversion): if the loop must compute in this dtype, raise `tolerance` in the adapter"
)
Cases: TypeAlias = dict[str, Case]


def require(reported: object, feature: str, hint: str) -> None:
    """Raise SkipTest if an adapter reports no values of a kind, since this is no evidence about the trainer.

    Args:
        reported: The reported values.
        feature: The name of the kind of values, for the message.
        hint: The end of the message, such as what the author of the adapter can do.
    """
    if not reported:
        raise SkipTest(f"the adapter reports no {feature}; {hint}")


def require_steps(*runs: Run) -> None:
    """Raise SkipTest if no run takes a step, since nothing was tried then."""
    if not any(run.steps for run in runs):
        raise SkipTest("no step is taken, so nothing can be judged")


def require_forwards(run: Run) -> None:
    """Raise SkipTest if a step has no forward in training mode, since the correct gradient of the step is unknown."""
    if without := [k for k, step in enumerate(run.steps, 1) if not step.batches]:
        mode = ": the forwards of the training examples are in eval mode" if trains_in_eval_mode(run) else ""
        raise SkipTest(f"no forward in training mode was seen before step {without[0]}{mode}")


def require_rate(bench: Bench, run: Run) -> None:
    """Raise SkipTest if the schedule of the loop gives the first step the rate 0, since the step changes no weight."""
    expected = getattr(bench.trainer, "expected_rate", None)
    documented = "schedule" in bench.lacks or (expected is not None and not expected(run.job, 0, len(run.steps)))
    if run.steps and not run.steps[0].rate and documented:
        raise SkipTest("the first step has the rate 0 by the schedule of the loop")


def trains_in_eval_mode(run: Run) -> bool:
    """Return whether a run trains in eval mode.

    Such a run has steps without a forward in training mode, and forwards of training examples in eval mode with
    gradients enabled.
    """
    if all(step.batches for step in run.steps):
        return False
    trained = {example.name for example in run.job.train}
    return any(trained.intersection(names) for names in run.eval_with_grad)


def refute(fault: str, run: Run, causes: tuple[str, ...] = (), suffix: str = "") -> NoReturn:
    """Print the steps of a run, and raise AssertionError; `KnownCause` if there are causes.

    Args:
        fault: The observed value and the correct one.
        run: The run that shows the fault.
        causes: The known mistakes that give exactly the fault.
        suffix: The end of the message, after the causes.
    """
    print(table(run))  # noqa: T201  # a report shows what the failing example has printed
    message = f"{fault}{format_causes(causes)}{suffix}"
    raise KnownCause(message) if causes else AssertionError(message)


MANY = 4
"""Smallest number of failing cases in which a cause that only one case has counts as a coincidence."""


def judge(cases: Cases, unexplained: str = "") -> None:
    """Refute the claim if a case has a fault; the message explains the case whose cause most failing cases share.

    Args:
        cases: The cases, by name.
        unexplained: A hint for the message if no cause is known and the case has no hint.

    Raises:
        AssertionError: A case has a fault; `KnownCause` if its cause is known.
        SkipTest: There is no case, or no case has a fault and the run of a case does not show whether the claim holds.
    """
    if not cases:
        raise SkipTest("no case of the claim can be tried: no run has a step or checkpoint that the claim is about")
    failed = {name: case for name, case in cases.items() if case.fault}
    if not failed:
        if untried := {name: case.untried for name, case in cases.items() if case.untried}:
            name = next(iter(untried))
            raise SkipTest(f"{name}: {untried[name]}")
        return
    name, causes = most_informative({name: case.causes for name, case in failed.items()})
    # All failing cases are listed, so that a user sees whether accumulation matters.
    names = "all" if len(failed) == len(cases) else "; ".join(failed)
    counts = f" ({len(failed)} of {len(cases)} cases fail: {names})" if len(cases) > 1 else ""
    hint = "" if causes else failed[name].hint or unexplained
    refute(f"{name}: {failed[name].fault}", failed[name].run, causes, f"{hint}{counts}")


def most_informative(cases: Mapping[K, Sequence[str]]) -> tuple[K, tuple[str, ...]]:
    """Return the case with the most frequent cause, and the causes of this case that are equally frequent.

    Of several such cases, the first one with the fewest causes is chosen. If only one of at least `MANY` cases has any
    cause, its causes count as a coincidence, and no cause is returned.

    Args:
        cases: The causes of each failing case.
    """
    if len(cases) >= MANY and sum(map(bool, cases.values())) == 1:
        return next(iter(cases)), ()
    # The true cause appears in every failing case; an accidental match appears in few cases.
    frequency = Counter(cause for causes in cases.values() for cause in dict.fromkeys(causes))

    def highest(causes: Sequence[str]) -> int:
        return max((frequency[cause] for cause in causes), default=0)

    name = min(cases, key=lambda case: (-highest(cases[case]), len(cases[case])))
    return name, tuple(cause for cause in cases[name] if frequency[cause] == highest(cases[name]))


def format_causes(causes: tuple[str, ...]) -> str:
    """Return "; it is A, or B"; "" if there is no cause."""
    return f"; it is {', or '.join(causes)}" if causes else ""


def side_effect_cases(bench: Bench, job: Job, cadence: str, name: str, count: Callable[[Run], int]) -> Cases:
    """Compare runs with evaluations or checkpoints, bit for bit, with runs without them.

    Args:
        bench: The bench.
        job: The job with evaluations or checkpoints.
        cadence: The setting that turns evaluations or checkpoints off if it is 0: `eval_every` or `save_every`.
        name: `evaluations` or `checkpoints`, for messages.
        count: Returns the observed number of evaluations or checkpoints of a run. If the runs are equal and the number
            is not larger in the run with evaluations or checkpoints, the adapter ignored the setting, and the case is
            untried.

    Returns:
        A case for each accumulation.
    """
    cases: Cases = {}
    for accumulate in (1, 2):
        job = replace(job, accumulate=accumulate)
        plain_job = replace(job, save_every=0) if cadence == "save_every" else replace(job, eval_every=0)
        run, plain = bench.run(job), bench.run(plain_job)
        is_equal = run.order == plain.order and not differing_tensors(run.weights, plain.weights)
        # Equal runs prove nothing if the adapter ignored the setting.
        if is_equal and not (run.steps and count(run) > count(plain)):
            every = getattr(job, cadence)
            reason = f"a run with `job.{cadence}` 0 has as many {name} as a run with {every}, or no step is taken"
            hint = f"the adapter must make {name} only if the setting is not 0 ({count(run)} are observed)"
            cases[f"accumulation {accumulate}"] = Case(run, untried=f"{reason}: {hint}")
            continue
        fault = "" if is_equal else f"the runs with and without {name} differ: {first_difference(run, plain)}"
        # Some trainers evaluate whenever they save. Then the evaluations may be the cause.
        evaluates = cadence != "eval_every" and len(run.evaluated) > len(plain.evaluated)
        source = f"the evaluations that come with {name}" if evaluates else name
        causes = (f"{explain_difference(run, plain)} that {source} change",) if fault else ()
        cases[f"accumulation {accumulate}"] = Case(run, fault, causes)
    return cases


def gradient_case(bench: Bench, run: Run, k: int) -> Case:
    """Compare the gradient of the step at index k with the gradient of the token mean over the examples of the step.

    Raises:
        SkipTest: The loop does not have `clip`, and the gradient is clipped at a usual limit.
    """
    step, tolerance = run.steps[k], bench.trainer.tolerance
    if not step.batches:
        causes = ("training in eval mode",) if trains_in_eval_mode(run) else ()
        return Case(run, "the optimizer takes a step without a forward in training mode since the last step", causes)
    # The oracle computes the token mean at the weights before the step, over exactly the examples that the step used.
    expected = run.sums(k).mean
    off = difference(step.gradient, expected)
    if off < tolerance:
        return Case(run)
    scored = [[example.scored for example in run.examples(batch)] for batch in step.batches]
    ratio = gradient_ratio(run, k, tolerance)
    # The loop may clip at a default limit that the adapter has not turned off. This is not a fault of the mean.
    if ratio is not None and 0 < ratio < 1 and "clip" in bench.lacks and scale_of(run, k) is None:
        _skip_clipped(norm(step.gradient))
    relation = f"is {ratio:.6g} times" if ratio is not None else f"differs by {off:.2g} of the largest element from"
    fault = (
        f"on the examples {[list(batch) for batch in step.batches]} with {scored} scored tokens, the gradient (norm "
        f"{norm(step.gradient):.6g}) {relation} the gradient of the token mean (norm {norm(expected):.6g})"
    )
    return Case(run, fault, explain_gradient(run, k, tolerance), PRECISION_HINT if off < BFLOAT16_ERROR else "")


def _skip_clipped(length: float) -> None:
    """Raise SkipTest if the norm of a gradient is a usual limit of clipping."""
    if any(math.isclose(length, limit, rel_tol=1e-4) for limit in LIMITS):
        hint = "pass `job.clip` to the loop (None is no limit), and do not name `clip` as missing in `features`"
        raise SkipTest(f"the gradient has the norm {length:.3g}, as in a loop that clips at its own limit: {hint}")


def gradient_cases(bench: Bench, run: Run, selects: Callable[[int, int], bool] = lambda taken, planned: True) -> Cases:
    """Compare the gradients of a run with the token mean, and return one case for them.

    Args:
        bench: The bench.
        run: The run.
        selects: Returns whether a step is judged. Its arguments are the actual and the planned number of micro-batches
            in the window of the step.

    Returns:
        A case without a fault, or the most informative case of a faulty gradient; {} if no step is selected.
    """
    job, sizes = run.job, [len(step.batches) for step in run.steps]
    cases = [gradient_case(bench, run, k) for k, size in enumerate(sizes) if selects(size, job.accumulate)]
    faults = {k: case for k, case in enumerate(cases) if case.fault}
    name = f"{len(job.train)} examples, batch {job.batch}, accumulation {job.accumulate}, seed {job.seed}"
    if not faults:
        return {name: Case(run)} if cases else {}
    k, causes = most_informative({name: case.causes for name, case in faults.items()})
    return {f"{name}, {len(faults)} of {len(cases)} steps": replace(faults[k], causes=causes)}


EPOCHS_WITH_SAVES = 6
"""Number of epochs for a trainer with one checkpoint per epoch.

It is large enough that rotation removes checkpoints, and that the best checkpoint is not among the newest.
"""


def with_several_saves(bench: Bench, job: Job, epochs: int = EPOCHS_WITH_SAVES) -> Job:
    """Return a job that saves several checkpoints.

    If the trainer evaluates and saves only at the end of an epoch, the job gets `epochs` epochs.
    """
    return replace(job, epochs=epochs) if "cadence" in bench.lacks else job


def on_disk(run: Run) -> list[int]:
    """Return the steps of the checkpoints that exist."""
    return sorted(step for step, path in run.checkpoints.items() if path.exists())


def due_checkpoints(bench: Bench, run: Run) -> list[int]:
    """Return the steps after which a checkpoint is due: the ends of epochs, if the trainer has no cadence in steps.

    No checkpoint is due if a step spans two epochs. Then the number of steps is no multiple of the number of epochs, or
    micro-batches are left over at the end.
    """
    # Without a cadence in steps, a checkpoint is due every `len(steps) / epochs` steps.
    saves_per_epoch = "cadence" in bench.lacks
    if saves_per_epoch and (run.leftover or len(run.steps) % run.job.epochs):
        return []
    every = len(run.steps) // run.job.epochs if saves_per_epoch else run.job.save_every
    return [*range(every, len(run.steps) + 1, every)] if every else []


def expected_decays(bench: Bench, job: Job) -> Decays:
    """Return the decays of the running average that a trainer documents; by default the constant decay of the job."""
    expected_decay: Callable[[Job, int], float] | None = getattr(bench.trainer, "expected_decay", None)
    return (lambda done: expected_decay(job, done)) if expected_decay is not None else lambda _: job.average or 0.0
