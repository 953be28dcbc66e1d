"""How the rates and tensors of a run are explained and described, on small numbers."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pv.suites.training_loop.diagnosis import differing_tensors, explain_rates, same_rates

RIGHT: Any = SimpleNamespace(steps=[SimpleNamespace(rate=rate) for rate in (4.0, 3.0, 2.0, 1.0, 0.0)])
NEW = "the rate of a new optimizer in the first step: the rate or the state of the optimizer is not restored"
TWICE = "the schedule of a run that has taken 2 steps: the steps before the cut count twice"
ANEW = "a schedule that starts over after the restored rate of the optimizer: the state of the schedule is lost"


@pytest.mark.parametrize(
    ("rates", "done", "causes"),
    [
        ([4.0, 1.0, 0.0], 2, (NEW,)),
        ([9.0, 3.0], 2, ("the schedule of a run that has taken 0 steps (last_epoch 0)",)),
        ([9.0, 1.0, 0.0], 2, ("the schedule of a run that has taken 2 steps (last_epoch 2)",)),
        ([2.0, 1.0, 0.0, 0.0], 1, (TWICE,)),
        ([3.0, 2.0, 2.0, 1.0], 1, (ANEW,)),
        ([7.0, 7.0, 7.0], 2, ()),
        ([4.0], 4, ()),
    ],
)
def test_rates_of_a_resumed_run_are_explained(rates: list[float], done: int, causes: tuple[str, ...]) -> None:
    assert explain_rates(rates, RIGHT, done) == causes


def test_rates_are_equal_up_to_rounding_of_the_largest() -> None:
    assert same_rates([1.0, 1e-13], [1.0, 0.0]) and same_rates([], [])
    assert not same_rates([1.0, 1e-11], [1.0, 0.0]) and not same_rates([1.0], [1.0, 0.0])


def test_differing_tensors_are_named_with_their_difference() -> None:
    same, scalar = torch.ones(2), torch.tensor(3.0)
    right = {"same": same, "lost": same, "wide": same, "step": scalar, "moved": torch.tensor([1.0, 5.0])}
    actual = {"same": same, "new": same, "wide": torch.ones(3), "step": scalar + 1, "moved": torch.tensor([1.5, 3.0])}
    assert differing_tensors(actual, right) == (
        "lost (missing), wide (shape [3], not [2]), step (4, not 3), moved (off by up to 2), new (unexpected)"
    )
    assert differing_tensors(right, right) == ""
