"""Faults seen in distillation losses: each is found by value and by gradient."""

import math

import pytest
import torch

from tests.equations.conftest import formulas as formulas
from tests.equations.conftest import tried as tried

FAULTS = [
    "tau for tau squared",
    "no tau squared",
    "reverse KL",
    "weights swapped",
    "sign",
    "mean of means",
    "mean over all",
    "mask ignored",
    "shifted by one",
    "logarithm to base 2",
    "epsilon in the logarithm",
    "probabilities clamped",
    "no maximum subtracted",
]


def loss_with(fault: str):
    def kd_loss(s, t, y, tau, ce_weight, kd_weight):
        factor = {"tau for tau squared": tau, "no tau squared": 1.0}.get(fault, tau**2)
        hard_weight, soft_weight = (kd_weight, ce_weight) if fault == "weights swapped" else (ce_weight, kd_weight)
        soft_weight = -soft_weight if fault == "sign" else soft_weight
        if fault == "shifted by one":
            y = torch.cat([y[:, 1:], torch.full_like(y[:, :1], -100)], 1) if y.shape[1] > 1 else y
        keep = torch.ones_like(y, dtype=torch.bool) if fault == "mask ignored" else y != -100
        log_p, log_q, log_1 = (logs(x, fault) for x in (t / tau, s / tau, s))
        soft = log_q.exp() * (log_q - log_p) if fault == "reverse KL" else log_p.exp() * (log_p - log_q)
        hard = -log_1.gather(-1, y.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        each = torch.where(keep, hard_weight * hard + soft_weight * factor * soft.sum(-1), 0.0)
        if fault == "mean of means":
            return (each.sum(1) / keep.sum(1).clamp_min(1)).mean()
        return each.mean() if fault == "mean over all" else each.sum() / keep.sum()

    return kd_loss


def logs(x, fault: str):
    if fault == "no maximum subtracted":
        return (x.exp() / x.exp().sum(-1, keepdim=True)).log()
    log = x.log_softmax(-1)
    if fault == "epsilon in the logarithm":
        return (log.exp() + 1e-6).log()
    if fault == "probabilities clamped":
        return log.exp().clamp_min(1e-9).log()
    return log / math.log(2) if fault == "logarithm to base 2" else log


def test_correct_loss_holds(formulas, tried) -> None:
    for name in ("kd_loss", "kd_gradient"):
        assert tried(formulas, name, {"kd_loss": loss_with("none")}, examples=60)["status"] == "held"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["kd_loss", "kd_gradient"])
def test_fault_is_found_within_200_examples(name, fault, formulas, tried) -> None:
    record = tried(formulas, name, {"kd_loss": loss_with(fault)}, examples=200)
    assert record["status"] == "refuted", record
    assert record["shrunk"]


def test_counterexample_is_minimal(formulas, tried) -> None:
    record = tried(formulas, "kd_loss", {"kd_loss": loss_with("tau for tau squared")})
    inputs = {name: value.flatten().tolist() for name, value in record["inputs"].items()}
    assert sorted(inputs.pop("t")) == [0.0, 1.0]
    assert inputs == {"s": [0.0, 0.0], "y": [0], "tau": [2.0], "ce_weight": [0.0], "kd_weight": [1.0]}
    assert record["error"].startswith(
        "Refuted: the code of kd_loss returned 0.06059974, the equation gives 0.1211994 (tolerance ±"
    )
