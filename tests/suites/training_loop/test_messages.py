"""A failing claim names a cause that is true, names it once, and numbers the steps as the whole run does."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import pytest

from pv.suites.training_loop import loop, plan
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import saved_job
from pv.suites.training_loop.claims.checks import judge
from pv.suites.training_loop.claims.logs import FILTERED
from pv.suites.training_loop.claims.resume import number_fault
from pv.suites.training_loop.diagnosis import explain_order, table
from pv.suites.training_loop.job import Job
from tests.suites.training_loop.planting import attack_of, by_id, correct, refutation

Steps = Sequence[Sequence[tuple[float, int]]]


def filtered(step: int, since: Steps, rate: float, norm: float) -> dict[str, float]:
    """Log as `logging_nan_inf_filter` of transformers does."""
    total = 0.0
    for done, window in enumerate(since):
        nats, tokens = (sum(part) for part in zip(*window, strict=True))
        total += nats / tokens if tokens else total / (done + 1)
    return {"step": step, "loss": total / len(since), "rate": rate, "norm": norm}


def drawn_again(job: Job, done: int) -> Iterator[Any]:
    """Draw the orders of a resumed run from another seed."""
    return plan.remaining(replace(job, seed=job.seed + 1000 * bool(done)), done)


def first_from_elsewhere(job: Job, done: int) -> Iterator[Any]:
    """Draw the order of the first epoch from another seed where there are workers."""
    epochs = plan.remaining(job, done)
    if job.workers:
        next(epochs)
        yield next(plan.remaining(replace(job, seed=1000), done))
    yield from epochs


@pytest.mark.parametrize(
    ("name", "fault", "claim", "cause"),
    [
        ("log_row", filtered, "TL-LOG-005", f"it is the mean of the steps' means, {FILTERED} ("),
        ("remaining", drawn_again, "TL-RESUME-001", "has: examples from before the cut are used again, and others le"),
        (
            "remaining",
            drawn_again,
            "TL-RESUME-009",
            "it is an order that no epoch of the run that was not cut has: the",
        ),
        (
            "remaining",
            first_from_elsewhere,
            "TL-DATA-006",
            "it is another order of the same examples in epoch 1: with workers it is drawn otherwise",
        ),
    ],
)
def test_cause_is_named(name: str, fault: Any, claim: str, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, name, fault)
    with pytest.raises(AssertionError, match=re.escape(cause)):
        attack_of(by_id(claim))(bench=Bench(loop.Loop()))


def test_a_step_of_one_micro_batch_has_one_mean() -> None:
    assert "; it is the mean of the steps' means (2 of 2" in refutation("logs-mean-of-means", "TL-LOG-004")


def test_few_examples_explain_no_order() -> None:
    run = correct().run(saved_job())
    names = [name for step in run.order for name in step]
    assert explain_order(names[4:6], run, 6) == ()
    assert explain_order(names[4:7], run, 6) == (
        "the order of its epoch, of which some before the cut is replayed: 1 step",
    )


def test_a_number_that_counts_all_tokens_from_the_cut_is_named() -> None:
    straight = correct().run(saved_job())
    again, before = correct().resume(straight, 2), straight.named(name for step in straight.order[:2] for name in step)
    counted = sum(len(each.tokens) for each in before)
    logs = [{"step": step, "num_tokens": 100.0 + 10 * step} for step in (3, 6)]
    less = [row | {"num_tokens": row["num_tokens"] - counted} for row in logs]
    fault, causes = number_fault(replace(straight, logs=tuple(logs)), replace(again, logs=tuple(less)), 2, "num_tokens")
    assert fault == f"num_tokens (step 3: {130 - counted}, not 130, step 6: {160 - counted}, not 160)"
    assert causes == ("num_tokens counted from 0 after the cut",)


def test_a_claim_without_a_case_is_undecided() -> None:
    with pytest.raises(SkipTest, match="no case of the claim can be tried"):
        judge({})


def test_steps_of_a_resumed_run_are_numbered_as_in_the_whole_run() -> None:
    straight = correct().run(saved_job())
    rows = table(correct().resume(straight, 5)).splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["6", "7", "8"]
