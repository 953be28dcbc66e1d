"""Claims about a run in two processes. They share one run, since starting processes takes long."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest import SkipTest

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import EVALUATED, job, unequal
from pv.suites.training_loop.claims.checks import Case, Cases, gradient_case, judge, refute, require_steps
from pv.suites.training_loop.claims.evaluation import TOLERANCE, evaluation_case
from pv.suites.training_loop.claims.logs import token_mean
from pv.suites.training_loop.claims.resume import starts_again
from pv.suites.training_loop.diagnosis import different, different_end, explain_set
from pv.suites.training_loop.numbers import equal_to
from pv.suites.training_loop.oracle import sums
from pv.suites.training_loop.run import Run


def both_ranks(bench: Bench, **settings: Any) -> tuple[Run, Run]:
    """Return the runs of the two ranks of a job, with checkpoints and evaluations if the trainer has them."""
    saved: dict[str, Any] = {} if bench.missing("", ("save",)) else {"save_every": 1}
    evaluated = {} if bench.missing("", ("evaluate",)) else {"evaluated": EVALUATED, "eval_every": 2}
    first, second = bench.ranks(job(unequal(10), batch=1, accumulate=2, **saved, **evaluated, **settings), 2)
    if len(first.steps) != len(second.steps):
        refute(f"the ranks take {len(first.steps)} and {len(second.steps)} steps", first)
    require_steps(first)
    return first, second


def falsify_examples_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    # A loop that fills windows up uses some examples of the next epoch in its last window.
    last = len(first.job.train) // (2 * first.job.accumulate) if bench.missing("", ("short_windows",)) else None
    times = Counter(name for run in (first, second) for step in run.order[:last] for name in step)
    expected = (
        Counter(example.name for example in first.job.train) if last is None else Counter(dict.fromkeys(times, 1))
    )
    if times != expected:
        refute(f"over both ranks, the examples are used so often in an epoch: {dict(sorted(times.items()))}", first)


def falsify_weights_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    for k, (a, b) in enumerate(zip(first.steps, second.steps, strict=True), 1):
        if differing := different(b.weights, a.weights):
            refute(f"after step {k} the weights of the ranks differ: {differing}", first)
    if first.order == second.order:
        raise SkipTest("both ranks have the same examples: their weights are the same also if nothing is reduced")


def falsify_gradient_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    pairs = zip(first.steps, second.steps, strict=True)
    # Data parallelism must equal one process that has both ranks' micro-batches: judge the union by the same oracle.
    together = replace(
        first, steps=tuple(replace(a, batches=a.batches + b.batches, widths=a.widths + b.widths) for a, b in pairs)
    )
    cases: Cases = {}
    for k in range(len(together.steps)):
        case = gradient_case(bench, together, k)
        if case.fault:
            case = replace(case, causes=(*_causes(bench, (first, second), k), *case.causes))
        cases[f"step {k + 1}"] = Case(first, case.fault, case.causes)
    judge(cases)


def falsify_resume_of_two_ranks(bench: Bench) -> None:
    drops = not bench.missing("TL-RESUME-004", ())
    uninterrupted = [*(both_ranks(bench, dropout=0.3) if drops else both_ranks(bench))]
    if 1 not in uninterrupted[0].checkpoints:
        if why := bench.missing("", ("cadence",)):
            raise SkipTest(f"one epoch has no checkpoint but its last: {why}")
        refute("two processes leave no checkpoint of step 1", uninterrupted[0])
    resumed = bench.resume_ranks(uninterrupted, 1)
    for rank, (whole, again) in enumerate(zip(uninterrupted, resumed, strict=True)):
        name = f"resumed after step 1, rank {rank}"
        if whole.order[1:] != again.order:
            causes = _causes_of_order(uninterrupted, resumed, rank)
            refute(f"{name} goes on with the examples {again.order}, not {whole.order[1:]}", again, causes)
        if differing := different_end(again, whole, 1):
            refute(f"{name} ends with other weights: {differing}", again)


def _causes_of_order(uninterrupted: Sequence[Run], resumed: Sequence[Run], rank: int) -> tuple[str, ...]:
    """Return the known mistakes that give a rank, resumed after step 1, exactly its examples."""
    actual, rest = resumed[rank].order, [run.order[1:] for run in uninterrupted]
    mistakes = {
        "the order of the first step and those after it: the data start again": starts_again(
            uninterrupted[rank], resumed[rank]
        ),
        "the examples of the other rank": actual == rest[1 - rank],
    }
    names = [[name for run in runs for step in run for name in step] for runs in ([r.order for r in resumed], rest)]
    return tuple(name for name, holds in mistakes.items() if holds) or explain_set(*names)


def falsify_evaluation_of_two_ranks(bench: Bench) -> None:
    runs, cases = both_ranks(bench), Cases()
    for rank, run in enumerate(runs):
        for k, loss in run.evaluations:
            cases[f"rank {rank}, step {k}"] = _evaluation_case(runs, rank, k, loss)
    if not cases:
        refute("no rank reports an evaluation", runs[0])
    judge(cases)


def _evaluation_case(runs: tuple[Run, Run], rank: int, k: int, loss: float) -> Case:
    run = runs[rank]
    case = evaluation_case(run, k, loss)
    parts = [run.named(chain(*part.evaluated[part.early :])) for part in runs]
    means = [token_mean([sums(run.before(k), part)]) for part in parts]
    mistakes = {"the mean of the ranks' means": sum(means) / 2, "that of its own part": means[rank]}
    return replace(case, causes=(*equal_to(loss, mistakes, TOLERANCE), *case.causes)) if case.fault else case


def falsify_no_example_is_never_used(bench: Bench) -> None:
    # Seven examples on two ranks: one is left out or repeated in each epoch, but not the same one always.
    runs = bench.ranks(job(unequal(7), batch=1, epochs=8), 2)
    used = {name for run in runs for step in run.order for name in step}
    if never := [example.name for example in runs[0].job.train if example.name not in used]:
        refute(f"in 8 epochs of two ranks, the examples {never} of 7 are never used", runs[0])


def _causes(bench: Bench, runs: tuple[Run, Run], k: int) -> tuple[str, ...]:
    """Return which mistakes with the ranks' sums give the gradient at index k."""
    a, b = (sums(run.before(k), run.named(run.steps[k].names)) for run in runs)
    mistakes = {
        "the mean of the ranks' means": (0.5, 0.5, a.tokens, b.tokens),
        "the sum of the ranks' means: each divides by its own tokens": (1.0, 1.0, a.tokens, b.tokens),
        "the mean of the ranks' sums, divided by the tokens of both: the average over ranks is not undone": (
            *(0.5, 0.5, a.tokens + b.tokens, a.tokens + b.tokens),
        ),
        "that of rank 0 alone: gradients are not added up": (1.0, 0.0, a.tokens, b.tokens),
    }
    actual, tolerance = runs[0].steps[k].gradient, max(bench.trainer.tolerance, 1e-6)

    def matches(one: float, other: float, ours: int, theirs: int) -> bool:
        # A mistake is a pair of factors and divisors of the two ranks' summed gradients.
        parts = {n: one * a.gradient[n] / max(ours, 1) + other * b.gradient[n] / max(theirs, 1) for n in a.gradient}
        return difference(actual, parts) < tolerance

    return tuple(name for name, factors in mistakes.items() if matches(*factors))
