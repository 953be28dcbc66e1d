"""Claims about which checkpoints are saved and kept, and that saving changes nothing."""

import math
from typing import Any
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import DIVERGING, EVALUATED, saved_job, unequal
from pv.suites.training_loop.claims.checks import Case, Cases, judge, refute, require, unchanged
from pv.suites.training_loop.run import Run

FEW_SAVES = 6
"""Epochs that leave checkpoints to remove, and a best one that is not among the newest, if each epoch has only one."""


def epochs(bench: Bench, expected: int = FEW_SAVES) -> dict[str, int]:
    """Return the epochs of a job whose trainer evaluates and saves only where epochs end; {} if it does it at steps."""
    return {"epochs": expected} if bench.missing("", ("cadence",)) else {}


def on_disk(run: Run) -> list[int]:
    """Return the steps of the checkpoints that exist."""
    return sorted(step for step, path in run.checkpoints.items() if path.exists())


def due(bench: Bench, run: Run) -> list[int]:
    """Return the steps after which a checkpoint is due: where epochs end, if the trainer has no other cadence.

    There are none if a step spans two epochs, as the micro-batches that are left over at the end show.
    """
    ends = bool(bench.missing("", ("cadence",)))
    if ends and (run.leftover or len(run.steps) % run.job.epochs):
        return []
    every = len(run.steps) // run.job.epochs if ends else run.job.save_every
    return [*range(every, len(run.steps) + 1, every)] if every else []


def falsify_saving_changes_nothing(bench: Bench) -> None:
    judge(unchanged(bench, saved_job(), "save_every", "checkpoints", _saved))


def _saved(run: Run) -> int:
    """Return how many files a run leaves in its directory; without any, how many checkpoints it reports elsewhere."""
    return sum(path.is_file() for path in run.job.directory.rglob("*")) or len(on_disk(run))


def falsify_saved_at_the_cadence(bench: Bench) -> None:
    run = bench.run(saved_job(save_every=2))
    actual, expected = on_disk(run), due(bench, run)
    if not expected:
        raise SkipTest(f"in {len(run.steps)} steps, no checkpoint is due")
    # A checkpoint at the very end is allowed besides those that are due.
    if not set(actual) >= set(expected) or {1, 3} & set(actual):
        mistakes = {
            "a first checkpoint at twice the cadence": actual == [4, 6, 8],
            "one step late": {3, 5, 7} <= set(actual),
            "one step early: steps are counted from 0": {1, 3, 5, 7} <= set(actual),
            "a checkpoint where an epoch ends": actual == [4, 8],
        }
        causes = tuple(name for name, holds in mistakes.items() if holds)
        refute(f"checkpoints of the steps {actual}, not of {', '.join(map(str, expected))}", run, causes)


def falsify_rotation_keeps_the_newest(bench: Bench) -> None:
    cases: Cases = {}
    for keep, batch in ((1, 2), (2, 2), (2, 1)):  # the last run has 21 steps: as text, 10 sorts before 9
        run = bench.run(saved_job(keep=keep, batch=batch, epochs=3))
        actual, every = on_disk(run), due(bench, run)
        if len(every) <= keep:
            continue  # there is none to remove
        fault = "" if actual == every[-keep:] else f"checkpoints of the steps {actual}, not of {every[-keep:]}"
        causes = _of_rotation(every, actual, keep) if fault else ()
        cases[f"keep {keep} of {len(every)}"] = Case(run, fault, causes)
    judge(cases)


def _of_rotation(every: list[int], actual: list[int], keep: int) -> tuple[str, ...]:
    """Return the known mistakes of rotation that leave exactly the checkpoints `actual` of `every`."""
    mistakes = {
        "one more than asked for": every[-keep - 1 :],
        "those whose names sort last as text": sorted(sorted(every, key=str)[-keep:]),
        "the oldest": every[:keep],
        "all of them": every,
        "one less than asked for": every[len(every) - keep + 1 :],
    }
    return tuple(name for name, steps in mistakes.items() if actual == steps)


def falsify_rotation_keeps_the_best(bench: Bench) -> None:
    cases: Cases = {}
    settings: dict[str, Any] = {"evaluated": EVALUATED, "eval_every": 1, "keep": 2, "best": True, "optimizer": "sgd"}
    settings |= epochs(bench)
    for seed, rate in ((1, 0.5), (2, 0.5), (1, 40.0), (2, 40.0), (1, DIVERGING)):
        job = saved_job(train=unequal(8), schedule="constant", seed=seed, rate=rate, dropout=0.0, **settings)
        run = bench.run(job)
        cases[f"seed {seed}, rate {rate:g}"] = _kept_case(run)
    judge(cases)
    if all(_best(case.run)[0] in due(bench, case.run)[-2:] for case in cases.values()):
        raise SkipTest("the best checkpoint is always one of the newest, so it is kept in any case")


def falsify_best_is_never_nan(bench: Bench) -> None:
    cases: Cases = {}
    settings: dict[str, Any] = {"evaluated": EVALUATED, "eval_every": 1, "keep": 2, "best": True, "optimizer": "sgd"}
    settings |= epochs(bench)
    for broken in ((0,), (2,), (3, 4)):
        job = saved_job(
            train=unequal(8), schedule="constant", rate=40.0, dropout=0.0, nan_evaluations=broken, **settings
        )
        run = bench.run(job)
        require_nan(run)
        cases[f"NaN in evaluation {' and '.join(str(place + 1) for place in broken)}"] = _kept_case(run)
    judge(cases)


def require_nan(run: Run) -> None:
    """Raise SkipTest if no evaluation with a NaN loss is reported, where the model returns NaN in one."""
    require(run.evaluations, "`evaluations`", "which the best checkpoint is chosen by")
    if not any(math.isnan(loss) for _, loss in run.evaluations):
        raise SkipTest("no evaluation with a NaN loss is reported, although the model returns NaN in one")


def _best(run: Run) -> tuple[int, float]:
    """Return step and loss of the evaluation with the least finite loss. Raise SkipTest if there is none."""
    finite = [evaluation for evaluation in run.evaluations if not math.isnan(evaluation[1])]
    require(finite, "evaluation with a finite loss", "which the best checkpoint is chosen by")
    return min(finite, key=lambda evaluation: evaluation[1])


def _kept_case(run: Run) -> Case:
    fault, actual = _kept_fault(run), on_disk(run)
    broken = {step for step, loss in run.evaluations if math.isnan(loss)}
    mistakes = {
        "the checkpoint of an evaluation with a NaN loss in place of the best": bool(broken & set(actual[:-2])),
        "the newest ones alone: the best is removed when it is old": actual
        == [*range(1, len(run.steps) + 1)][-len(actual) :],
    }
    return Case(run, fault, tuple(name for name, holds in mistakes.items() if fault and holds))


def _kept_fault(run: Run) -> str:
    actual, last = on_disk(run), len(run.steps)
    best, loss = _best(run)
    if best not in actual:
        return f"the best step is {best} with loss {loss:.6g}, and the checkpoints are those of the steps {actual}"
    if last not in actual:
        return f"the newest step is {last}, and the checkpoints are those of the steps {actual}"
    return f"{len(actual)} checkpoints are kept, of the steps {actual}; 2 are asked for" if len(actual) > 3 else ""
