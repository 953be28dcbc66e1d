from typing import Any

import pytest
from torch.optim import lr_scheduler

from pv.suites.driving import NotDriven
from pv.suites.lr_schedule.bench import PEAK, Bench


def rate(step: int, *, warmup: int, total: int, peak: float = 1.0) -> float:
    return peak * min(1.0, step / max(1, warmup)) * (step <= total)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lr_scheduler.LambdaLR, "nothing is known for its parameter 'lr_lambda'"),
        (lr_scheduler.ReduceLROnPlateau, "missing 1 required positional argument: 'metrics'"),
        (lambda warmup, total: rate, "nothing is known for its parameter 'warmup'"),
        (lambda: None, "it is no function of a step or of an optimizer"),
        (0.1, "it is no function of a step or of an optimizer"),
    ],
)
def test_what_to_write_is_said_where_it_cannot_be_driven(make: Any, why: str) -> None:
    with pytest.raises(NotDriven, match=rf"(?s)cannot drive .*{why}.*def rate\(step, warmup, total\)"):
        Bench(make)


def test_arguments_are_known_by_their_names() -> None:
    bench = Bench(rate)
    assert bench.rates(2, 4, 6) == [0, PEAK / 2, PEAK, PEAK, PEAK, 0]
    assert bench.lacks.keys() == {"scheduler", "groups"}


def test_a_scheduler_that_refuses_more_steps_has_fewer_rates() -> None:
    bench = Bench(lr_scheduler.OneCycleLR)
    assert len(bench.rates(0, 10, 20)) == 11
    assert bench.lacks["stay"] == "it refuses steps after the planned ones"
