"""Attempts are submitted until the first failure under --fail-fast."""

from types import SimpleNamespace
from typing import Any

from pv.commands.attempt import Attempt, Known, Options
from pv.commands.submission import STOPPED, Submission
from pv.results.trial import TrialStatus
from pv.workers.scheduler import Job
from tests.results.handmade import contract, falsifier

CLAIM = falsifier()
CONTRACT = contract(CLAIM)


class FakeScheduler:
    """Keeps every job that is submitted."""

    def __init__(self) -> None:
        self.jobs: list[Job[Attempt]] = []
        self.cancelled = False

    def submit(self, job: Job[Attempt]) -> None:
        self.jobs.append(job)

    def cancel(self) -> list[Attempt]:
        self.cancelled = True
        return [job.key for job in self.jobs]


def submission(fail_fast: bool) -> tuple[Submission, FakeScheduler, Known]:
    scheduler, known = FakeScheduler(), Known()
    bodies: Any = SimpleNamespace(how=lambda attempt: None, attack=lambda attempt, claim, how: "body")
    made: Any = scheduler
    return Submission(made, bodies, Options(jobs=1, fail_fast=fail_fast), {"c": known}), scheduler, known


def attempt(**fields: Any) -> Attempt:
    return Attempt(contract=CONTRACT, device="cpu", falsifier=CLAIM, **fields)


def test_job_carries_its_claim_mutant_and_limit() -> None:
    made, scheduler, _ = submission(fail_fast=False)
    made.falsify(attempt(mutant=CONTRACT.mutants[0]), CLAIM)
    (job,) = scheduler.jobs
    assert (job.claim, job.mutant, job.label, job.body) == ("F", "m", "F / m", "body")
    assert job.limit_s > 0


def test_first_failure_cancels_what_has_not_started_and_what_is_submitted_later() -> None:
    made, scheduler, known = submission(fail_fast=True)
    made.falsify(attempt(), CLAIM)
    made.fail_fast(False)
    assert (scheduler.cancelled, known.trials) == (False, {})
    made.fail_fast(True)
    made.falsify(attempt(mutant=CONTRACT.mutants[0]), CLAIM)
    assert len(scheduler.jobs) == 1
    cancelled = known.trials["F", "cpu"], known.mutants["F", "m"]
    assert [(each.status, each.detail) for each in cancelled] == [(TrialStatus.CANCELLED, STOPPED)] * 2


def test_failure_cancels_nothing_without_fail_fast() -> None:
    made, scheduler, known = submission(fail_fast=False)
    made.falsify(attempt(), CLAIM)
    made.fail_fast(True)
    assert (scheduler.cancelled, known.trials) == (False, {})
