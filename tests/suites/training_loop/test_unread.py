"""A setting that an adapter ignores leaves a claim undecided: it says nothing of the trainer."""

from dataclasses import replace
from pathlib import Path
from unittest import SkipTest

import pytest

from pv.suites.training_loop.claims.cases import equal
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.unread import refuse_unread, watched

JOB = Job(directory=Path("out"), train=equal(4), clip=1.0, groups=True)


def test_setting_that_is_not_read_is_named() -> None:
    seen = watched(JOB)
    assert seen.clip == 1.0
    with pytest.raises(
        SkipTest, match=r"^the adapter does not read job.groups: use it, or list the feature in `lacks`$"
    ):
        refuse_unread(JOB)


def test_reads_of_a_copy_count() -> None:
    replace(watched(JOB), seed=2)
    refuse_unread(JOB)


def test_reads_in_a_method_of_the_job_count() -> None:
    job = Job(directory=Path("out"), train=equal(4), dropout=0.5)
    watched(job).model()
    refuse_unread(job)


def test_resumed_run_need_not_read_all() -> None:
    job = replace(JOB, resume=Path("step-4"))
    watched(job)
    refuse_unread(job)


def test_cadence_of_logs_matters_only_where_something_is_logged() -> None:
    job = Job(directory=Path("out"), train=equal(4), log_every=3)
    watched(job)
    refuse_unread(job, {"loss", "rate", "norm", "history"})
    with pytest.raises(SkipTest, match=r"job\.log_every"):
        refuse_unread(job, {"rate", "norm"})


def test_loop_with_a_schedule_of_its_own_need_not_read_one() -> None:
    job = Job(directory=Path("out"), train=equal(4), schedule="linear", warmup=2, optimizer="adamw")
    watched(job)
    refuse_unread(job, {"schedule": "the rate is constant", "optimizer": "AdamW alone"})
    with pytest.raises(SkipTest, match=r"job\.schedule, job\.warmup: use"):
        refuse_unread(job, {"optimizer": "AdamW alone"})
