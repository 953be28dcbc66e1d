"""Claims about several ranks, and about several features in one run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from unittest import SkipTest

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import COMBINABLE, EVALUATED, equal, unequal
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    due_checkpoints,
    expected_decays,
    gradient_case,
    judge,
    refute,
    require_steps,
)
from pv.suites.training_loop.claims.losses import EVALUATION_TOLERANCE, evaluation_case, is_same_loss
from pv.suites.training_loop.claims.resume import end_fault, starts_again
from pv.suites.training_loop.claims.updates import schedule_of
from pv.suites.training_loop.diagnosis import differing_tensors, end_difference, explain_set
from pv.suites.training_loop.job import HEAD_FACTOR, Job
from pv.suites.training_loop.oracle import (
    START,
    close,
    matching_numbers,
    norm,
    running_average,
    scaled,
    sums,
    token_mean,
)
from pv.suites.training_loop.run import Run


def both_ranks(bench: Bench, dropout: float = 0.0) -> tuple[Run, Run]:
    """Run a job in two ranks, with checkpoints and evaluations if the trainer has them, and return both runs.

    Raises:
        AssertionError: The ranks take different numbers of steps.
        SkipTest: Neither rank takes a step.
    """
    saves = "save" not in bench.lacks
    job = Job(train=unequal(10), batch=1, accumulate=2, save_every=int(saves), dropout=dropout)
    if "evaluate" not in bench.lacks:
        job = replace(job, evaluated=EVALUATED, eval_every=2)
    first, second = bench.ranks(job, 2)
    if len(first.steps) != len(second.steps):
        refute(f"the ranks take {len(first.steps)} and {len(second.steps)} steps", first)
    require_steps(first)
    return first, second


def falsify_examples_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    # A loop that fills up windows from the next epoch uses examples of that epoch in the last step: leave the step out.
    limit = len(first.job.train) // (2 * first.job.accumulate) if "short_windows" in bench.lacks else None
    times = Counter(name for run in (first, second) for step in run.order[:limit] for name in step)
    # No example may be used twice; without a limit, every example must be used.
    names = times if limit is not None else [example.name for example in first.job.train]
    if times != Counter(dict.fromkeys(names, 1)):
        refute(f"uses of the examples in an epoch, over both ranks: {dict(sorted(times.items()))}", first)


def falsify_weights_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    for k, (a, b) in enumerate(zip(first.steps, second.steps, strict=True), 1):
        if differing := differing_tensors(b.weights, a.weights):
            refute(f"after step {k} the weights of the ranks differ: {differing}", first)
    if first.order == second.order:
        raise SkipTest("both ranks have the same examples, so their weights are equal even if no gradient is reduced")


def falsify_gradient_of_two_ranks(bench: Bench) -> None:
    first, second = both_ranks(bench)
    pairs = zip(first.steps, second.steps, strict=True)
    # Data parallelism must give the gradient of one process with the micro-batches of both ranks, so the oracle judges
    # the union.
    together = replace(
        first, steps=tuple(replace(a, batches=a.batches + b.batches, widths=a.widths + b.widths) for a, b in pairs)
    )
    cases: Cases = {}
    for k in range(len(together.steps)):
        case = gradient_case(bench, together, k)
        if case.fault:
            case = replace(case, causes=(*_causes_of_gradient(bench, (first, second), k), *case.causes))
        cases[f"step {k + 1}"] = Case(first, case.fault, case.causes)
    judge(cases)


def falsify_resume_of_two_ranks(bench: Bench) -> None:
    # Without a claim about random numbers after a resume, the job must not draw any.
    claims_dropout = not bench.missing("TL-RESUME-004", ())
    uninterrupted = [*both_ranks(bench, dropout=0.3 if claims_dropout else 0.0)]
    if 1 not in uninterrupted[0].checkpoints:
        if reason := bench.lacks.get("cadence"):
            raise SkipTest(f"the only checkpoint of an epoch is its last one: no cadence: {reason}")
        refute("two processes leave no checkpoint of step 1", uninterrupted[0])
    resumed_ranks = bench.resume_ranks(uninterrupted, 1)
    for rank, (run, resumed) in enumerate(zip(uninterrupted, resumed_ranks, strict=True)):
        name = f"resumed after step 1, rank {rank}"
        if run.order[1:] != resumed.order:
            causes = _causes_of_order(uninterrupted, resumed_ranks, rank)
            refute(f"{name} continues with the examples {resumed.order}, not {run.order[1:]}", resumed, causes)
        if differing := end_difference(resumed, run, 1):
            refute(f"{name} ends with other weights: {differing}", resumed)


def _causes_of_order(uninterrupted: Sequence[Run], resumed: Sequence[Run], rank: int) -> tuple[str, ...]:
    """Return the known mistakes that explain the examples which a rank uses after a resume at step 1."""
    actual, expected = [run.order for run in resumed], [run.order[1:] for run in uninterrupted]
    mistakes = {
        "the order of the first step and the steps after it: the data start again": starts_again(
            uninterrupted[rank], resumed[rank]
        ),
        "the examples of the other rank": actual[rank] == expected[1 - rank],
    }
    # The names of the examples of both ranks, in order.
    names = [[name for order in orders for step in order for name in step] for orders in (actual, expected)]
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
    """Compare the loss of an evaluation that a rank reports after step k with the mean over all evaluated tokens."""
    run = runs[rank]
    case = evaluation_case(run, k, loss)
    parts = [run.examples(chain(*part.evaluated[part.initial_evaluations :])) for part in runs]
    means = [token_mean([sums(run.before(k), part)]) for part in parts]
    mistakes = {"the mean of the ranks' means": sum(means) / 2, "the loss of its own part": means[rank]}
    causes = matching_numbers(loss, mistakes, EVALUATION_TOLERANCE)
    return replace(case, causes=(*causes, *case.causes)) if case.fault else case


def falsify_no_example_is_never_used(bench: Bench) -> None:
    # Two ranks cannot share seven examples evenly. An epoch may leave out one, but not every epoch the same one.
    runs = bench.ranks(Job(train=unequal(7), batch=1, epochs=8), 2)
    used = {name for run in runs for step in run.order for name in step}
    if never := [example.name for example in runs[0].job.train if example.name not in used]:
        refute(f"in 8 epochs of two ranks, the examples {never} of 7 are never used", runs[0])


def _causes_of_gradient(bench: Bench, runs: tuple[Run, Run], k: int) -> tuple[str, ...]:
    """Return the known mistakes in combining the ranks' gradients that give the gradient of the step at index k."""
    a, b = (run.sums(k) for run in runs)
    # For each mistake: (factor a, factor b, divisor a, divisor b). The summed gradient of each rank is multiplied by
    # its factor and divided by its divisor, then the two results are added.
    mistakes = {
        "the mean of the ranks' means": (0.5, 0.5, a.tokens, b.tokens),
        "the sum of the ranks' means: each divides by its own tokens": (1.0, 1.0, a.tokens, b.tokens),
        "the mean of the ranks' sums, divided by the tokens of both: the average over ranks is not undone": (
            0.5,
            0.5,
            a.tokens + b.tokens,
            a.tokens + b.tokens,
        ),
        "the gradient of rank 0 alone: gradients are not added up": (1.0, 0.0, a.tokens, b.tokens),
    }
    actual, tolerance = runs[0].steps[k].gradient, max(bench.trainer.tolerance, 1e-6)

    def explains(factor_a: float, factor_b: float, divisor_a: int, divisor_b: int) -> bool:
        by_a, by_b = factor_a / max(divisor_a, 1), factor_b / max(divisor_b, 1)
        return difference(actual, {n: by_a * a.gradient[n] + by_b * b.gradient[n] for n in a.gradient}) < tolerance

    return tuple(name for name, numbers in mistakes.items() if explains(*numbers))


GRADIENT_TOLERANCE = 1e-4
"""Relative tolerance of gradients, which may be clipped: PyTorch adds 1e-6 to a norm."""


def covering_sets(features: Sequence[str]) -> list[tuple[str, ...]]:
    """Return sets of features. For every two features, there are sets with both, with either alone, and with neither.

    The first set has all features.
    """
    # A set is the tuple of its pairs (feature, whether the set has it), in the order of the features.
    sets = [tuple(zip(features, has, strict=True)) for has in product((True, False), repeat=len(features))]
    uncovered = {pair for candidate in sets for pair in combinations(candidate, 2)}
    chosen = []
    # Greedy set cover as in AETG (Cohen et al. 1997): take the set with the most combinations that are not covered yet.
    # Smallest covering arrays are hard to compute, and a few more runs do not matter.
    while uncovered:
        best = max(sets, key=lambda candidate: len(uncovered.intersection(combinations(candidate, 2))))
        uncovered.difference_update(combinations(best, 2))
        chosen.append(tuple(name for name, has in best if has))
    return chosen


def _features(bench: Bench) -> list[str]:
    """Return the features of `COMBINABLE` that the loop has."""
    return [name for name in COMBINABLE if name not in bench.lacks]


def _job(bench: Bench, features: Sequence[str], batch: int = 2) -> Job:
    """Return a job with some features: two epochs of full windows, with checkpoints if the loop has them."""
    job = Job(train=equal(8), epochs=2, batch=batch, save_every=0 if "save" in bench.lacks else 3)
    # No two features change the same setting, so their order does not matter.
    for name in features:
        job = COMBINABLE[name](job)
    return job


def _judge(cases: Mapping[tuple[str, ...], Case]) -> None:
    """Refute the claim if a run has a fault.

    The cause is the feature, or the pair of features, that all faulty runs have and no other run has.

    Args:
        cases: The cases by the features of their runs.
    """
    failed = [set(features) for features, case in cases.items() if case.fault]
    passed = [set(features) for features, case in cases.items() if not case.fault]
    common = sorted(set.intersection(*failed)) if failed else []
    candidates = [*combinations(common, 1), *combinations(common, 2)]
    culprits = next((names for names in candidates if not any({*names} <= features for features in passed)), ())
    causes = (f"what `{'` and `'.join(culprits)}` do{'' if culprits[1:] else 'es'}",) if culprits else ()
    judge({" with ".join(features) or "no feature": replace(case, causes=causes) for features, case in cases.items()})


def _runs(bench: Bench) -> dict[tuple[str, ...], Run]:
    """Return the runs with covering sets of features, by their features."""
    runs = {features: bench.run(_job(bench, features)) for features in covering_sets(_features(bench))}
    require_steps(*runs.values())
    return runs


def falsify_features_together(bench: Bench) -> None:
    _judge({features: Case(run, _fault(bench, run)) for features, run in _runs(bench).items()})


def _fault(bench: Bench, run: Run) -> str:
    """Return the first fault of gradients, rates, average or evaluations; "" if there is none."""
    faults = (_gradient_fault, _rate_fault, _average_fault, _evaluation_fault)
    return next((text for check in faults if (text := check(bench, run))), "")


def _gradient_fault(bench: Bench, run: Run) -> str:
    """Return the first fault of a gradient; "" if there is none."""
    for k, step in enumerate(run.steps):
        plain = run.sums(k, smoothing=run.job.smoothing).mean
        scale = 1.0 if run.job.clip is None else min(1.0, run.job.clip / norm(plain))
        off = difference(step.gradient, scaled(plain, scale))
        if off > max(GRADIENT_TOLERANCE, bench.trainer.tolerance):
            length = f"norm {norm(step.gradient):.6g}, not {norm(plain) * scale:.6g}"
            return f"the gradient of step {k + 1} has {length}, and is off by {off:.2g} of its largest element"
    return ""


def _rate_fault(bench: Bench, run: Run) -> str:
    """Return the first fault of a learning rate; "" if there is none.

    The rates are not checked if the schedule of the job is constant, or the trainer does not claim its schedule.
    """
    if run.job.schedule == "constant" or bench.missing("TL-RATE-001", ()):
        return ""
    scheduled_rate = schedule_of(bench, run)
    for k, step in enumerate(run.steps):
        rate = scheduled_rate(k, len(run.steps))
        expected = {n: rate * (HEAD_FACTOR if run.job.groups and n.startswith("head.") else 1) for n in step.rates}
        if not all(close(step.rates[name], rate) for name, rate in expected.items()):
            return f"step {k + 1} has the rates {dict(step.rates)}, not {expected}"
    return ""


def _average_fault(bench: Bench, run: Run) -> str:
    """Return the fault of the running average; "" if there is none."""
    if run.job.average is None:
        return ""
    expected = running_average(START, [step.weights for step in run.steps], expected_decays(bench, run.job))
    off = difference(run.average, expected) if run.average else 1.0
    return f"the running average is off by {off:.2g} of its largest element" if off > GRADIENT_TOLERANCE else ""


def _evaluation_fault(bench: Bench, run: Run) -> str:
    """Return the fault of the last evaluation; "" if there is none."""
    # Only the last evaluation is judged here. TL-EVAL-001 is about all evaluations of a run, TL-EVAL-007 about the
    # steps for which they are reported.
    if not run.evaluations or run.evaluations[-1][0] > len(run.steps):
        return ""
    k, loss = run.evaluations[-1]
    expected = token_mean([sums(run.before(k), run.job.evaluated)])
    if is_same_loss(loss, expected):
        return ""
    if run.job.average and is_same_loss(loss, token_mean([sums(run.average, run.job.evaluated)])):
        return ""  # some loops evaluate the average
    return f"the evaluation after step {k} has the loss {loss:.6g}, not {expected:.6g}"


def falsify_features_together_after_a_cut(bench: Bench) -> None:
    cases = {}
    for features, uninterrupted in _runs(bench).items():
        steps = [k for k in due_checkpoints(bench, uninterrupted) if k < len(uninterrupted.steps)]
        if steps:
            resumed = bench.resume(uninterrupted, steps[-1])
            fault = _describe_end(uninterrupted, resumed, steps[-1])
            cases[features] = Case(resumed, f"cut after step {steps[-1]}, {fault}" if fault else "")
    _judge(cases)


def _describe_end(uninterrupted: Run, resumed: Run, k: int) -> str:
    """Describe how the weights or the average at the end of a run that was resumed after step k differ; "" if equal."""
    average = end_difference(resumed, uninterrupted, k, "average") if uninterrupted.job.average is not None else ""
    return end_fault(uninterrupted, resumed, k) or (f"average at the end: {average}" if average else "")


def featured_ranks(bench: Bench) -> tuple[Run, Run]:
    """Run a job with all features of the loop except evaluations in two ranks, and return both runs."""
    features = [name for name in _features(bench) if name != "evaluate"]
    first, second = bench.ranks(_job(bench, features, batch=1), 2)
    if len(first.steps) != len(second.steps):
        refute(f"the ranks take {len(first.steps)} and {len(second.steps)} steps", first)
    return first, second


def falsify_features_in_two_ranks(bench: Bench) -> None:
    runs = first, second = featured_ranks(bench)
    pairs = zip(first.steps, second.steps, strict=True)
    # Judge every rank as one process with the micro-batches of both ranks.
    batches = [a.batches + b.batches for a, b in pairs]
    together = [
        replace(run, steps=tuple(replace(step, batches=b) for step, b in zip(run.steps, batches, strict=True)))
        for run in runs
    ]
    judge({f"rank {rank}": Case(runs[rank], _fault(bench, run)) for rank, run in enumerate(together)})


def falsify_features_in_two_ranks_after_a_cut(bench: Bench) -> None:
    uninterrupted = [*featured_ranks(bench)]
    steps = [k for k in sorted(uninterrupted[0].checkpoints) if k < len(uninterrupted[0].steps)]
    if not steps:
        raise SkipTest("the only checkpoint of the run is its last one")
    cases: Cases = {}
    for rank, resumed in enumerate(bench.resume_ranks(uninterrupted, steps[-1])):
        run = uninterrupted[rank]
        expected = run.order[steps[-1] :]
        is_other_order = resumed.order != expected
        fault = (
            f"examples {resumed.order}, not {expected}" if is_other_order else _describe_end(run, resumed, steps[-1])
        )
        cases[f"rank {rank}, resumed after step {steps[-1]}"] = Case(resumed, fault)
    judge(cases)
