"""Claims about several features in one run: each pair of them is together in a run, and one without the other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any
from unittest import SkipTest

from pv.equations.causes import difference
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.averages import averaged, decays
from pv.suites.training_loop.claims.cases import TOGETHER, equal, job
from pv.suites.training_loop.claims.checkpoints import due
from pv.suites.training_loop.claims.checks import Case, Cases, judge, refute, require_steps
from pv.suites.training_loop.claims.evaluation import TOLERANCE
from pv.suites.training_loop.claims.logs import token_mean
from pv.suites.training_loop.claims.rates import schedule_of
from pv.suites.training_loop.claims.resume import same_end
from pv.suites.training_loop.diagnosis import different_end
from pv.suites.training_loop.job import HEAD, Job
from pv.suites.training_loop.numbers import close
from pv.suites.training_loop.oracle import START, norm, sums
from pv.suites.training_loop.run import Run

NEAR = 1e-4
"""How far gradients may be off, relative; PyTorch adds 1e-6 to a norm."""


def covering(features: Sequence[str]) -> list[tuple[str, ...]]:
    """Return sets of features that cover every combination of two: both, either without the other, and neither.

    The algorithm is greedy, as in AETG (Cohen et al. 1997): take the set with the most combinations that no earlier set
    has, the first of several. The first set has all features.
    """
    sets = [dict(zip(features, on, strict=True)) for on in product((True, False), repeat=len(features))]
    pairs = {frozenset(pair) for features in sets for pair in combinations(features.items(), 2)}
    chosen = []
    # Greedy set cover: optimal covering arrays are hard to compute, and a few runs more do not matter.
    while pairs:
        best = max(
            sets, key=lambda features: sum(frozenset(pair) in pairs for pair in combinations(features.items(), 2))
        )
        pairs -= {frozenset(pair) for pair in combinations(best.items(), 2)}
        chosen.append(tuple(name for name, on in best.items() if on))
    return chosen


def _features(bench: Bench) -> list[str]:
    """Return the features of `TOGETHER` that the loop has."""
    return [name for name in TOGETHER if not bench.missing("", (name,))]


def _job(bench: Bench, features: Sequence[str], **changes: Any) -> Job:
    """Return a job of two epochs of full windows, with checkpoints where the loop has them."""
    saved: dict[str, Any] = {} if bench.missing("", ("save",)) else {"save_every": 3}
    settings = {key: value for name in features for key, value in TOGETHER[name].items()}
    return job(equal(8), epochs=2, **saved | settings | changes)


def _judge(cases: Mapping[tuple[str, ...], Case]) -> None:
    """Refute the claim if a run has a fault, and name the features that all runs with one have, and no other run."""
    failed = [set(features) for features, case in cases.items() if case.fault]
    passed = [set(features) for features, case in cases.items() if not case.fault]
    # A feature, or two together, that all failing runs have and no passing run has.
    common = sorted(set.intersection(*failed)) if failed else []
    sets = [*combinations(common, 1), *combinations(common, 2)]
    alone = next((candidate for candidate in sets if not any({*candidate} <= features for features in passed)), ())
    causes = (f"what `{'` and `'.join(alone)}` do{'' if alone[1:] else 'es'}",) if alone else ()
    judge({" with ".join(features) or "none of them": replace(case, causes=causes) for features, case in cases.items()})


def _runs(bench: Bench) -> dict[tuple[str, ...], Run]:
    runs = {features: bench.run(_job(bench, features)) for features in covering(_features(bench))}
    require_steps(*runs.values())
    return runs


def falsify_features_together(bench: Bench) -> None:
    _judge({features: Case(run, _fault(bench, run)) for features, run in _runs(bench).items()})


def _fault(bench: Bench, run: Run) -> str:
    """Return the first thing that is wrong with gradients, rates, average or evaluations; "" if nothing is."""
    faults = (_of_gradient, _of_rates, _of_average, _of_evaluations)
    return next((text for check in faults if (text := check(bench, run))), "")


def _of_gradient(bench: Bench, run: Run) -> str:
    for k, step in enumerate(run.steps):
        right = sums(run.before(k), run.named(step.names), run.job.smoothing)
        plain = {name: tensor / max(right.tokens, 1) for name, tensor in right.gradient.items()}
        scale = 1.0 if run.job.clip is None else min(1.0, run.job.clip / norm(plain))
        off = difference(step.gradient, {name: tensor * scale for name, tensor in plain.items()})
        if off > max(NEAR, bench.trainer.tolerance):
            length = f"norm {norm(step.gradient):.6g}, not {norm(plain) * scale:.6g}"
            return f"the gradient of step {k + 1} has {length}, and is off by {off:.2g} of its largest element"
    return ""


def _of_rates(bench: Bench, run: Run) -> str:
    if run.job.schedule == "constant" or bench.missing("TL-RATE-001", ()):
        return ""
    scheduled = schedule_of(bench, run)
    for k, step in enumerate(run.steps):
        rate = scheduled(k, len(run.steps))
        expected = {n: rate * (HEAD if run.job.groups and n.startswith("head.") else 1) for n in step.rates}
        if not all(close(step.rates[name], rate) for name, rate in expected.items()):
            return f"step {k + 1} has the rates {dict(step.rates)}, not {expected}"
    return ""


def _of_average(bench: Bench, run: Run) -> str:
    if run.job.average is None:
        return ""
    expected = averaged(START, [step.weights for step in run.steps], decays(bench, run.job))
    off = difference(run.average, expected) if run.average else 1.0
    return f"the running average is off by {off:.2g} of its largest element" if off > NEAR else ""


def _of_evaluations(bench: Bench, run: Run) -> str:
    for k, loss in run.evaluations[-1:]:  # the others are those of TL-EVAL-001
        expected = token_mean([sums(run.before(k), run.job.evaluated)]) if k <= len(run.steps) else loss
        if close(loss, expected, TOLERANCE):
            return ""
        if run.job.average and close(loss, token_mean([sums(run.average, run.job.evaluated)]), TOLERANCE):
            return ""  # some loops evaluate the average
        return f"the evaluation after step {k} has the loss {loss:.6g}, not {expected:.6g}"
    return ""


def falsify_features_together_after_a_cut(bench: Bench) -> None:
    cases = {}
    for features, uninterrupted in _runs(bench).items():
        steps = [k for k in due(bench, uninterrupted) if k < len(uninterrupted.steps)]
        if steps:
            again = bench.resume(uninterrupted, steps[-1])
            fault = _end(uninterrupted, again, steps[-1])
            cases[features] = Case(again, f"cut after step {steps[-1]}, {fault}" if fault else "")
    _judge(cases)


def _end(uninterrupted: Run, again: Run, k: int) -> str:
    """Return how weights or average of a run that was resumed after step k end, where that differs."""
    average = different_end(again, uninterrupted, k, "average") if uninterrupted.job.average is not None else ""
    return same_end(uninterrupted, again, k) or (f"average at the end: {average}" if average else "")


def both_ranks(bench: Bench) -> tuple[Run, Run]:
    """Return the runs of two ranks with all features of the loop, but for those that its evaluations have."""
    features = [name for name in _features(bench) if name != "evaluate"]
    first, second = bench.ranks(_job(bench, features, batch=1), 2)
    if len(first.steps) != len(second.steps):
        refute(f"the ranks take {len(first.steps)} and {len(second.steps)} steps", first)
    return first, second


def falsify_features_in_two_ranks(bench: Bench) -> None:
    runs = first, second = both_ranks(bench)
    pairs = zip(first.steps, second.steps, strict=True)
    batches = [a.batches + b.batches for a, b in pairs]
    whole = [
        replace(r, steps=tuple(replace(s, batches=b) for s, b in zip(r.steps, batches, strict=True))) for r in runs
    ]
    judge({f"rank {rank}": Case(runs[rank], _fault(bench, run)) for rank, run in enumerate(whole)})


def falsify_features_in_two_ranks_after_a_cut(bench: Bench) -> None:
    uninterrupted = [*both_ranks(bench)]
    steps = [k for k in sorted(uninterrupted[0].checkpoints) if k < len(uninterrupted[0].steps)]
    if not steps:
        raise SkipTest("the run has no checkpoint but its last")
    cases: Cases = {}
    for rank, again in enumerate(bench.resume_ranks(uninterrupted, steps[-1])):
        whole = uninterrupted[rank]
        other = whole.order[steps[-1] :] != again.order
        fault = f"examples {again.order}, not {whole.order[steps[-1] :]}" if other else _end(whole, again, steps[-1])
        cases[f"rank {rank}, resumed after step {steps[-1]}"] = Case(again, fault)
    judge(cases)
