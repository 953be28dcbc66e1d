from typing import Any

import pytest
import torch
from torch import nn

from pv.suites.driving import NotDriven
from pv.suites.optimizer.bench import RATE, Bench


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (torch.optim.LBFGS, "missing 1 required positional argument: 'closure'"),
        (torch.optim.SparseAdam, "does not support dense gradients"),
        (lambda parameters, lr: None, "it returned NoneType"),
        (nn.Linear, "none of its parameters is named lr, rate, learning_rate"),
        (3, "it cannot be called"),
    ],
)
def test_what_to_write_is_said_where_it_cannot_be_driven(make: object, why: str) -> None:
    with pytest.raises(NotDriven, match=rf"(?s)cannot drive .*{why}.*def make\(parameters, lr=1e-3\)"):
        Bench(make)


class Passing(torch.optim.AdamW):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)


def test_parameters_of_base_classes_are_known() -> None:
    bench = Bench(Passing)
    assert (bench.rate, bench.name, bench.flags) == ("lr", "adamw", ["foreach", "fused"])


def test_a_function_that_makes_groups_gets_a_rate_for_each_weight() -> None:
    def make(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": parameters[:1], "momentum": 0.9}, {"params": parameters[1:]}], lr=rate)

    run = Bench(make).start([torch.ones(2), torch.ones(3)], [RATE, 0.0])
    groups = [run.group(each) for each in run.weights]
    assert [(each["lr"], each["momentum"]) for each in groups] == [(RATE, 0.9), (0.0, 0)]
