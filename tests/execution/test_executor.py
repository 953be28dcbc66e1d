"""The events of an executor: attempts that start, attempts that the cache answers, and attempts that are cancelled."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.load import load
from pv.contract.model import Contract
from pv.engines.trial import TrialStatus
from pv.execution.attempt import Attempt, Attempts
from pv.execution.consumers import Journal, stop_at_failure
from pv.execution.executor import Executor
from pv.execution.plan import Answer, Cancelled, Event, Finished, Result, Step
from pv.execution.validation import supports
from pv.results.reuse.cache import ResultCache
from pv.source.project import find_project
from pv.workers import tasks
from pv.workers.pool import Pool, PoolCache
from tests.support.projects import Project


@pytest.fixture
def small(project: Project) -> Path:
    return project("small")


@pytest.fixture
def contract(small: Path) -> Contract:
    (loaded,) = load([small / "contracts"]).contracts
    return loaded


@pytest.fixture
def pool(small: Path, contract: Contract) -> Iterator[Pool]:
    preload = tasks.preload(find_project(small), [contract], {contract.subject_of(contract.claims[0])})
    with PoolCache(1) as pools, pools.pool(preload) as pool:
        yield pool


def attempts_of(folder: Path, contract: Contract, *ids: str) -> list[Attempt]:
    attempts, claims = Attempts(find_project(folder)), {claim.id: claim for claim in contract.claims}
    return [attempts.clean(contract, claims[id_]) for id_ in ids]


def names_of(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(type(event).__name__, str(getattr(event, "attempt", ""))) for event in events]


def test_run_is_executed_once_before_its_claims_and_cached_claims_start_nothing(
    small: Path, contract: Contract, pool: Pool
) -> None:
    with closing(ResultCache(find_project(small))) as cache:
        journal = Journal(cache, supports)
        for measured in (True, False):
            events: list[Event] = []
            executor = Executor(pool, journal)
            executor.consumers.append(events.append)
            trials = executor.trials(attempts_of(small, contract, "C-RUN", "C-RUN-FIRST"))
            assert {trial.status for trial in trials} == {TrialStatus.HELD}
            assert all(trial.reached for trial in trials), "the code ran in the worker of the run"
            finished = [event for event in events if isinstance(event, Finished)]
            assert {event.reused for event in finished} == {not measured}
            if measured:
                assert names_of(events)[:3] == [(name, "run whole") for name in ("Queued", "Started", "Finished")]
                assert Counter(names_of(events)).most_common(1)[0][1] == 1
            else:
                assert names_of(events) == [("Finished", "C-RUN"), ("Finished", "C-RUN-FIRST")]


class Steps:
    """A plan that has only first steps, and collects the events that end its attempts."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.ends: list[Any] = []

    def start(self) -> tuple[Step, ...]:
        return self.steps

    def follow(self, event: Finished | Cancelled) -> tuple[Step, ...]:
        self.ends.append(event)
        return ()


def test_failure_cancels_waiting_and_later_attempts_and_claims_that_wait_for_a_run(
    small: Path, contract: Contract, pool: Pool
) -> None:
    whole, run, later = attempts_of(small, contract, "C-WHOLE", "C-RUN", "C-LIMIT")
    failure = Result(whole, None, failed=True)  # type: ignore[arg-type]
    plan, executor = Steps(whole, run, failure, later), Executor(pool)
    executor.consumers.append(stop_at_failure(executor.cancel))
    executor.run(plan)
    cancelled = [("Cancelled", name) for name in ("C-WHOLE", "run whole", "C-RUN", "C-LIMIT")]
    assert names_of(plan.ends) == cancelled


def test_answer_ends_queued_attempts_without_a_worker(small: Path, contract: Contract, pool: Pool) -> None:
    whole, limit = attempts_of(small, contract, "C-WHOLE", "C-LIMIT")
    (trial,) = Executor(pool).trials([whole])
    same_trial = replace(trial, falsifier="C-LIMIT")
    plan = Steps(limit, whole, Answer(lambda attempt: same_trial if attempt is limit else None))
    Executor(pool).run(plan)
    assert sorted((str(end.attempt), end.reused) for end in plan.ends) == [("C-LIMIT", True), ("C-WHOLE", False)]
    assert next(end.trial for end in plan.ends if end.attempt is limit) is same_trial
