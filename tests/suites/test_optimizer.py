"""Claims of the suite `optimizer` on PyTorch's optimizers, on others that are right, and on wrong ones."""

import functools
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import pytest
import torch

from pv.suites.bench import CannotCall
from pv.suites.optimizer.adamw import AdamW
from pv.suites.optimizer.suite import Bench
from reference_trainer.training.update import new_optimizer
from tests.suites.trying import trying_of

TRYING = trying_of("optimizer")
FORMULA = {"OPT-STEP-001", "OPT-ORDER-001"}


def split(parameters: Any, lr: float = 1e-3) -> torch.optim.Optimizer:
    """Return AdamW without decay of vectors, which is a group of its own."""
    matrices, vectors = ([weight for weight in parameters if (weight.ndim < 2) is small] for small in (False, True))
    groups: list[Any] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, weight_decay=0.1)


def nesterov(params: Any, lr: float, momentum: float = 0.9, dampening: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=lr, momentum=momentum, dampening=dampening, nesterov=True)


class Sign(torch.optim.Optimizer):
    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight -= group["lr"] * weight.grad.sign()


@pytest.mark.parametrize(
    ("make", "not_claimed"),
    [
        (AdamW, set()),
        (torch.optim.Adam, {"OPT-DECAY-001"}),
        (functools.partial(torch.optim.AdamW, maximize=True), set()),
        (nesterov, {"OPT-DECAY-001", "OPT-FLAG-001"}),
        (torch.optim.Adagrad, FORMULA | {"OPT-DECAY-001"}),
        (torch.optim.ASGD, FORMULA | {"OPT-DECAY-001", "OPT-GROUP-001", "OPT-RATE-001"}),
        (torch.optim.Muon, FORMULA | {"OPT-DECAY-001", "OPT-FLAG-001"})
        if hasattr(torch.optim, "Muon")
        else (AdamW, set()),
        (Sign, FORMULA | {"OPT-DECAY-001", "OPT-FLAG-001"}),
        (split, {"OPT-FLAG-001"}),
        (new_optimizer, {"OPT-FLAG-001"}),
    ],
)
def test_correct_optimizers_keep_what_they_claim(make: Any, not_claimed: set[str]) -> None:
    assert TRYING.wrong(make) == dict.fromkeys(not_claimed, "")


class Captured(Sign):
    """Has the rate of its constructor."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr)
        self.rate = lr

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["lr"] = self.rate
        super().step()


class Aliased(Sign):
    """Keeps the gradient of the first step, and adds it."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for weight in (tensor for group in self.param_groups for tensor in group["params"] if tensor.grad is not None):
            weight.grad = weight.grad + self.state[weight].setdefault("first", weight.grad)
        super().step()


class Remembering(AdamW):
    """Has its betas in an attribute, and not in its groups."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr)
        self.betas = self.param_groups[0].pop("betas")

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["betas"] = self.betas
        super().step()
        for group in self.param_groups:
            del group["betas"]


def test_declared_formula_that_cannot_be_computed_leaves_its_claim_undecided() -> None:
    bench = Bench(Remembering)
    claims = {claim for claim, needs in TRYING.needs.items() if bench.missing(claim, needs)}
    assert claims == {"OPT-FLAG-001"}
    with pytest.raises(SkipTest, match="the formula 'adamw' cannot be computed: its groups have no betas; write"):
        TRYING.tests["OPT-STEP-001"](bench=bench)


def test_unknown_formula_is_refused() -> None:
    with pytest.raises(CannotCall, match=r"unknown formula 'adamv' \(choose from sgd, adam, adamw, or pass a function"):
        Bench(type("Other", (AdamW,), {"formula": "adamv"}))


@pytest.mark.parametrize(
    ("make", "claim", "message"),
    [
        (Captured, "OPT-GROUP-001", "rate 0 in group . changes its weight by .*, as with the rate 0.01 of the other"),
        (Captured, "OPT-RATE-001", "a rate set to 0.03 in param_groups after a step with 0.01 changes nothing"),
        (Aliased, "OPT-GRAD-001", "step 1 changes a gradient"),
    ],
)
def test_wrong_optimizers_are_refuted(make: Callable[..., Any], claim: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        TRYING.tests[claim](bench=Bench(make))
