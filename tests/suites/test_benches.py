"""Subjects of suites: what is read from a signature, and errors for subjects that are not supported."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler
from torch.utils.data import DistributedSampler, RandomSampler

from pv.suites.bench import CannotCall
from pv.suites.distillation_loss.suite import Bench as LossBench
from pv.suites.lr_schedule.suite import PEAK
from pv.suites.lr_schedule.suite import Bench as ScheduleBench
from pv.suites.mean_metric.suite import Bench as MetricBench
from pv.suites.mean_metric.token_mean import TokenMean
from pv.suites.optimizer.suite import RATE
from pv.suites.optimizer.suite import Bench as OptimizerBench
from pv.suites.sampler.suite import Bench as SamplerBench


class Logs:
    def update(self, value: float) -> None:
        pass

    def compute(self) -> dict[str, float]:
        return {}


def other(student: Tensor, teacher: Tensor) -> Tensor:
    return student.sum()


other.divergence = "jensen"  # type: ignore[attr-defined]


METRIC, LOSS = "update(self, value, weight)", "loss(student, teacher, labels, temperature"
SCHEDULE, OPTIMIZER = "rate(step, warmup", "make(parameters, lr=1e-3)"
SAMPLER = "make(size, batch_size, seed, world_size"


@pytest.mark.parametrize(
    ("bench", "make", "why", "write"),
    [
        (MetricBench, dict, "it has none of compute", METRIC),
        (MetricBench, list, "it has none of update, add", METRIC),
        (MetricBench, lambda size: TokenMean(), "missing 1 required positional argument: 'size'", METRIC),
        (MetricBench, Logs, "TypeError: float() argument must be", METRIC),
        (LossBench, lambda student: student, "it is not a function of two logits", LOSS),
        (LossBench, lambda student, teacher, beta: student, "unknown parameter 'beta'", LOSS),
        (LossBench, lambda student, teacher: student, "it returned Tensor, not a scalar tensor", LOSS),
        (LossBench, other, "unknown divergence 'jensen' (choose from forward, reverse)", LOSS),
        (ScheduleBench, lr_scheduler.LambdaLR, "unknown parameter 'lr_lambda'", SCHEDULE),
        (ScheduleBench, lr_scheduler.ReduceLROnPlateau, "missing 1 required positional argument: 'metrics'", SCHEDULE),
        (ScheduleBench, 0.1, "it is not a function of a step or of an optimizer", SCHEDULE),
        (OptimizerBench, torch.optim.LBFGS, "missing 1 required positional argument: 'closure'", OPTIMIZER),
        (OptimizerBench, torch.optim.SparseAdam, "does not support dense gradients", OPTIMIZER),
        (OptimizerBench, nn.Linear, "none of its parameters is named lr, rate, learning_rate", OPTIMIZER),
        (OptimizerBench, 3, "it is not callable", OPTIMIZER),
        (SamplerBench, lambda size: iter(range(size)), "iterator, which has one epoch, and takes no `epoch`", SAMPLER),
        (SamplerBench, lambda size, budget: [[0]], "unknown parameter 'budget'", SAMPLER),
        (SamplerBench, lambda seed: [0], "no parameter is the dataset, its lengths or its size", SAMPLER),
    ],
)
def test_what_to_write_is_said_where_a_subject_cannot_be_called(bench: Any, make: Any, why: str, write: str) -> None:
    with pytest.raises(CannotCall) as refused:
        bench(make)
    message = str(refused.value)
    assert message.startswith("cannot call ") and why in message and f"def {write}" in message


def test_every_reason_why_a_claim_is_missing_is_said() -> None:
    metric = MetricBench(TokenMean)
    metric.subject = SimpleNamespace(not_claimed={"A": "documented"})
    metric.lacks = {"merge": "m", "state": "s", "reset": "r"}
    assert metric.missing("A", ("state", "weight", "merge")) == "no state: s; no merge: m; documented"
    assert metric.missing("B", ("weight",)) == ""


def test_a_sum_is_known_by_the_name_of_its_parameter() -> None:
    class Sum(TokenMean):
        def update(self, total: Any, count: int) -> None:  # type: ignore[override]
            super().update(total / count, count)

    assert MetricBench(Sum).filled([(2.0, 3), (4.0, 1)]).mean() == 2.5


def test_a_loss_of_rows_gets_rows() -> None:
    loss = LossBench(lambda student_NV, teacher_NV, labels_N: cross_entropy(student_NV - teacher_NV, labels_N))
    assert loss.case(0).student.shape == (10, 1, 7)


def test_a_schedule_is_known_by_its_names_and_may_refuse_more_steps() -> None:
    def rate(step: int, *, warmup: int, total: int, peak: float = 1.0) -> float:
        return peak * min(1.0, step / max(1, warmup)) * (step <= total)

    assert ScheduleBench(rate).rates(2, 4, 6) == [0, PEAK / 2, PEAK, PEAK, PEAK, 0]

    def joined(optimizer: Any, warmup: int, T_max: int = 9) -> Any:
        parts = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, T_max)]
        return lr_scheduler.SequentialLR(optimizer, parts, [warmup])

    assert ScheduleBench(joined).lacks.keys() == {"total", "stay"}, "`T_max` may be the steps of the decay alone"
    assert ScheduleBench(lr_scheduler.OneCycleLR).lacks["stay"] == "it refuses steps after the planned end"


def test_an_optimizer_has_the_parameters_of_its_bases_and_its_own_groups() -> None:
    class Passing(torch.optim.AdamW):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)

    def make(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
        groups: list[Any] = [{"params": parameters[:1], "momentum": 0.9}, {"params": parameters[1:]}]
        return torch.optim.SGD(groups, lr=rate)

    bench = OptimizerBench(Passing)
    assert (bench.rate_name, bench.formula_name, bench.flags) == ("lr", "adamw", ["foreach", "fused"])
    run = OptimizerBench(make).start([torch.ones(2), torch.ones(3)], [RATE, 0.0])
    groups = [run.group(weight) for weight in run.weights]
    assert [(group["lr"], group["momentum"]) for group in groups] == [(RATE, 0.9), (0.0, 0)]


def test_what_a_partial_gives_to_a_sampler_is_left() -> None:
    assert "shuffle" in SamplerBench(functools.partial(DistributedSampler, shuffle=False)).lacks
    both = SamplerBench(lambda lengths, dataset=None: [*range(len(lengths))])
    assert (both.arguments["lengths"], both.arguments["data"]) == ("lengths", "")
    assert "once" in SamplerBench(functools.partial(RandomSampler, replacement=True)).lacks


def metric_with(**attributes: object) -> type:
    return type("Metric", (TokenMean,), attributes)


def test_features_of_a_subject_correct_what_its_signature_shows() -> None:
    bench = MetricBench(metric_with(features={"merge": "it may not be merged", "reset": False, "state": True}))
    assert bench.lacks == {"merge": "it may not be merged", "reset": "`features` of the subject says False"}


@pytest.mark.parametrize(
    ("features", "text"),
    [
        ({"merged": "none"}, "`features` of Metric names an unknown feature 'merged'; did you mean 'merge'?"),
        ({"weight": True}, "`features` of Metric has 'weight', but update takes none of weight, weights"),
    ],
)
def test_features_that_are_unknown_or_not_there_are_refused(features: dict[str, object], text: str) -> None:
    with pytest.raises(CannotCall, match=text):
        MetricBench(metric_with(features=features, update=lambda self, value: None, compute=lambda self: 0.0))


def test_lacks_of_version_0_2_is_read_with_a_notice() -> None:
    with pytest.warns(FutureWarning, match="Metric: `lacks` will not be read from version 0.5 on"):
        assert MetricBench(metric_with(lacks={"merge": "none"})).lacks == {"merge": "none"}
