"""The plan's faults leave a run that is not resumed as it is."""

from collections.abc import Callable
from typing import Any

import pytest

from pv.suites.training_loop import plan, plan_faults
from pv.suites.training_loop.claims.cases import saved_job

FAULTS = [
    plan_faults.first_order,
    plan_faults.first_order_next,
    plan_faults.loses_an_epoch,
    plan_faults.steps_after_the_end,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_straight_run_is_planned_as_without_the_fault(fault: Callable[..., Any]) -> None:
    job = saved_job()
    assert list(fault(plan.remaining, job, 0)) == list(plan.remaining(job, 0))
