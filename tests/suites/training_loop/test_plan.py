"""Decisions of the loop, which import nothing of it."""

import pytest

from pv.suites.training_loop import plan
from pv.suites.training_loop.claims.cases import equal, job, saved_job


@pytest.mark.parametrize("done", range(9))
def test_remaining_windows_are_the_end_of_the_whole_plan(done: int) -> None:
    whole = [window for epoch in plan.remaining(saved_job(), 0) for window in epoch]
    assert [window for epoch in plan.remaining(saved_job(), done) for window in epoch] == whole[done:]


def test_max_steps_ends_within_an_epoch() -> None:
    assert [len(epoch) for epoch in plan.remaining(job(equal(4), max_steps=3), 0)] == [2, 1]


def test_nan_is_never_the_best() -> None:
    assert plan.better(None, (1, float("nan"))) is None
    assert plan.better((2.0, 1), (2, float("nan"))) == (2.0, 1)
    assert plan.better((2.0, 1), (2, 1.5)) == (1.5, 2)


def test_best_takes_no_place_of_the_newest() -> None:
    assert plan.kept([1, 2, 3, 4], 2, 1) == {1, 3, 4}
    assert plan.kept([1, 2, 3], None, None) == {1, 2, 3}
