"""Claims about the running average of the weights."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import saved_job
from pv.suites.training_loop.claims.checks import Case, Cases, judge, require, require_steps
from pv.suites.training_loop.claims.resume import cut_after_every_step
from pv.suites.training_loop.diagnosis import different_end
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.numbers import CLOSE
from pv.suites.training_loop.oracle import START
from pv.suites.training_loop.run import Run

DECAY = 0.75
Weights = Mapping[str, Tensor]


Decays = Callable[[int], float]
"""The decay of an update, by the number of updates before it: the share of the old average that stays."""


def decays(bench: Bench, job: Job) -> Decays:
    """Return the decays that a trainer documents; a constant one if it says nothing."""
    expected_decay: Callable[[Job, int], float] | None = getattr(bench.trainer, "expected_decay", None)
    return (lambda done: expected_decay(job, done)) if expected_decay is not None else lambda _: job.average or 0.0


def constant(done: int) -> float:
    return DECAY


def averaged(start: Weights, later: Sequence[Weights], decay: Decays, done: int = 0) -> Weights:
    """Return the running average that starts with weights after `done` updates and takes in later ones."""
    # mean = d mean + (1 - d) weights after each step; d may depend on the number of updates.
    mean = start
    for k, weights in enumerate(later, done):
        mean = {name: decay(k) * tensor + (1 - decay(k)) * weights[name] for name, tensor in mean.items()}
    return mean


def _mistaken_averages(run: Run, decay: Decays) -> dict[str, Weights]:
    """Return the averages that known mistakes give."""
    after, before = [step.weights for step in run.steps], [run.before(k) for k in range(len(run.steps))]
    micro = [step.weights for step in run.steps for _ in step.batches]
    each_batch = [
        weights
        for k, step in enumerate(run.steps)
        for weights in (*(run.before(k) for _ in step.batches[1:]), step.weights)
    ]
    first = [run.before(k) for k, step in enumerate(run.steps) for _ in step.batches]
    and_steps = [
        weights
        for k, step in enumerate(run.steps)
        for weights in (*(run.before(k) for _ in step.batches), step.weights)
    ]
    return {
        "updated with every micro-batch, and after the step once more": averaged(START, and_steps, decay),
        "updated with every micro-batch, before the step": averaged(START, first, decay),
        "the average of the weights before each step, so it is updated before the step": averaged(START, before, decay),
        "the average with the parts of old and new exchanged": averaged(START, after, lambda k: 1 - decay(k)),
        "updated with every micro-batch": averaged(START, micro, decay),
        "updated with every micro-batch, also those that no step follows": averaged(START, each_batch, decay),
        "the average that starts with the weights after the first step": averaged(after[0], after[1:], decay),
        "the average with a decay that warms up as (1 + n) / (10 + n), which `expected_decay` of the adapter can say": (
            averaged(START, after, lambda k: min(decay(k), (1 + k) / (10 + k)))
        ),
        "the average with the larger of the decay and (1 + n) / (10 + n), where a warm-up has the smaller": (
            averaged(START, after, lambda k: max(DECAY, (1 + k) / (10 + k)))
        ),
        "the average with the constant decay of the job, without a warm-up": averaged(START, after, constant),
        "the average with the decay of the first update": averaged(START, after, lambda _: decay(0)),
        "the weights at the start: it is never updated": START,
        f"the weights at the end: {_why(run)}": run.weights,
    }


def _why(run: Run) -> str:
    """Return why the average is the weights, as far as that is seen."""
    if run.shared:
        return "the average shares their storage, so nothing is averaged (copy them where it begins)"
    return "nothing is averaged, as where it shares their storage (a `clone` is missing) or its decay is 0"


def falsify_average_of_the_weights(bench: Bench) -> None:
    cases: Cases = {}
    allowed = max(bench.trainer.tolerance, CLOSE)
    for accumulate in (1, 2):
        run = bench.run(saved_job(accumulate=accumulate, dropout=0.0, average=DECAY))
        require(run.average, "`average`", "`features` has it")
        require_steps(run)
        decay = decays(bench, run.job)
        off = difference(run.average, averaged(START, [step.weights for step in run.steps], decay))
        fault = f"after {len(run.steps)} steps the average is off by {off:.2g} of the largest weight"
        causes = tuple(
            name
            for name, mistaken in _mistaken_averages(run, decay).items()
            if difference(run.average, mistaken) < allowed
        )
        cases[f"accumulation {accumulate}"] = Case(run, fault, causes) if off > allowed else Case(run)
    judge(cases)


def falsify_average_after_a_cut(bench: Bench) -> None:
    def check(uninterrupted: Run, again: Run, k: int) -> tuple[str, tuple[str, ...]]:
        require(uninterrupted.average, "`average`", "`features` has it")
        differing = different_end(again, uninterrupted, k, "average")
        later = [step.weights for step in uninterrupted.steps[k:]]
        starts = {
            "an average that starts anew with the weights of the checkpoint": uninterrupted.steps[k - 1].weights,
            "an average that starts anew with the weights at the start": START,
        }
        decay = decays(bench, uninterrupted.job)
        averages = {name: averaged(start, later, decay, k) for name, start in starts.items()}
        saved = averaged(START, [step.weights for step in uninterrupted.steps[:k]], decay)
        averages["the average of the checkpoint with the decays of a new run: its count of updates is not restored"] = (
            averaged(saved, later, decay)
        )
        causes = (name for name, mistaken in averages.items() if difference(again.average, mistaken) < CLOSE)
        return f"average at the end: {differing}" if differing else "", tuple(causes)

    cut_after_every_step(bench, check, dropout=0.0, average=DECAY)
