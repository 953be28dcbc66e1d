"""Claims about label smoothing."""

from torch import Tensor

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import EVALUATED, equal, evaluated_job, job
from pv.suites.training_loop.claims.checks import Case, Cases, judge, require
from pv.suites.training_loop.claims.evaluation import TOLERANCE, evaluation_case
from pv.suites.training_loop.claims.logs import token_mean
from pv.suites.training_loop.numbers import equal_to
from pv.suites.training_loop.oracle import sums
from pv.suites.training_loop.run import Run

SMOOTHING = 0.2


def falsify_training_with_smoothing(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        run = bench.run(job(equal(8), accumulate=accumulate, smoothing=SMOOTHING))
        for k in range(len(run.steps)):
            cases[f"accumulation {accumulate}, step {k + 1}"] = _gradient_case(bench, run, k)
    judge(cases)


def _gradient_case(bench: Bench, run: Run, k: int) -> Case:
    off = difference(run.steps[k].gradient, _mean(run, k, SMOOTHING))
    if off < bench.trainer.tolerance:
        return Case(run)
    mistakes = {"that without smoothing": 0.0, "that with twice the smoothing": 2 * SMOOTHING}
    causes = tuple(
        name
        for name, smoothing in mistakes.items()
        if difference(run.steps[k].gradient, _mean(run, k, smoothing)) < bench.trainer.tolerance
    )
    fault = f"the gradient is off by {off:.2g} of the largest element from that of the mean with smoothed labels"
    return Case(run, fault, causes)


def _mean(run: Run, k: int, smoothing: float) -> dict[str, Tensor]:
    """Return the gradient of the token mean over the examples of the step at index k."""
    total = sums(run.before(k), run.named(run.steps[k].names), smoothing)
    return {name: tensor / max(total.tokens, 1) for name, tensor in total.gradient.items()}


def falsify_evaluation_without_smoothing(bench: Bench) -> None:
    run, cases = bench.run(evaluated_job(eval_batch=len(EVALUATED), smoothing=SMOOTHING)), Cases()
    require(run.evaluations, "`evaluations`", "and `job.evaluated` is set")
    for k, loss in run.evaluations:
        case = evaluation_case(run, k, loss)
        smoothed = token_mean([sums(run.before(k), run.job.evaluated, SMOOTHING)])
        causes = equal_to(loss, {"that with label smoothing, as in training": smoothed}, TOLERANCE)
        cases[f"step {k}"] = Case(run, case.fault, (*causes, *case.causes)) if case.fault else case
    judge(cases)
