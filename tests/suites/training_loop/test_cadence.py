"""A correct loop that evaluates and saves only where an epoch ends is not accused."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import saved_job
from pv.suites.training_loop.claims.checkpoints import due
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop
from pv.suites.training_loop.plan import epoch_windows
from tests.suites.training_loop.planting import attack_of, by_id

CLAIMS = """TL-EVAL-001 TL-EVAL-002 TL-EVAL-005 TL-SAVE-001 TL-KEEP-001 TL-KEEP-002 TL-KEEP-003 TL-BEST-001 TL-BEST-002
TL-BEST-004 TL-RATE-004 TL-RESUME-001 TL-RESUME-002 TL-RESUME-003 TL-RESUME-008 TL-RESUME-009 TL-RESUME-010
TL-RESUME-013 TL-AVERAGE-002 TL-SCALER-002""".split()


class EpochEnds(Loop):
    """The correct loop, with no cadence but that of epochs."""

    lacks: Mapping[str, str] = {**Loop.lacks, "cadence": "it evaluates and saves where an epoch ends"}

    def run(self, job: Job) -> Report:
        steps = len(epoch_windows(job, 0))
        return super().run(replace(job, eval_every=job.eval_every and steps, save_every=job.save_every and steps))


@cache
def bench() -> Bench:
    return Bench(EpochEnds())


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_are_tried_where_epochs_end(claim: str) -> None:
    attack_of(by_id(claim))(bench=bench())
    assert any(run.checkpoints or run.evaluations for run in bench().used)


@pytest.mark.parametrize("claim", ["TL-EVAL-007", "TL-SAVE-002"])
def test_claims_about_other_cadences_are_not_made(claim: str) -> None:
    assert bench().missing(claim, by_id(claim).options["needs"]).startswith("no cadence: it evaluates and saves")


def test_no_checkpoint_is_due_where_a_step_spans_two_epochs() -> None:
    run = bench().run(saved_job())
    assert due(bench(), run) == [4, 8]
    assert due(bench(), replace(run, leftover=((1,),))) == []
    assert due(bench(), replace(run, steps=run.steps[:-1])) == []
