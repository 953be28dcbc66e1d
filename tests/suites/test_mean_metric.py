"""Claims of the suite `mean-metric` on metrics that are right, and on wrong ones."""

import re
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tests.suites.trying import trying_of

TRYING = trying_of("mean-metric")
MERGE, STATE = {"MTR-MERGE-001"}, {"MTR-STATE-001"}


class Meter:
    """The meter of PyTorch's examples, which is given numbers."""

    empty = 0.0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.avg, self.sum, self.count = 0.0, 0.0, 0

    def update(self, val: Tensor, n: int = 1) -> None:
        if n:
            self.sum, self.count = self.sum + float(val) * n, self.count + n
            self.avg = self.sum / self.count


class Sums:
    """Takes a sum and a count; without any, dividing by 0 is an error."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total: Any = 0.0
        self.count = 0

    def update(self, total: Tensor, count: int) -> None:
        self.total, self.count = self.total + float(total), self.count + count

    def compute(self) -> Any:
        return self.total / self.count

    def merge_state(self, metrics: "list[Sums]") -> None:
        for metric in metrics:
            self.total, self.count = self.total + metric.total, self.count + metric.count

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.count = state["total"], state["count"]


@pytest.mark.parametrize(("make", "not_claimed"), [(Meter, MERGE | STATE), (Sums, set())])
def test_correct_metrics_keep_what_they_claim(make: Any, not_claimed: set[str]) -> None:
    assert TRYING.wrong(make) == dict.fromkeys(not_claimed, "")


@pytest.mark.filterwarnings("ignore")
def test_torchmetrics_keeps_what_it_claims_in_float64() -> None:
    metric = pytest.importorskip("torchmetrics").MeanMetric
    assert TRYING.wrong(lambda: metric().set_dtype(torch.float64)) == dict.fromkeys(STATE, "")
    assert "are not counted" in TRYING.wrong(metric)["MTR-MANY-001"]


class Unweighted(Sums):
    def update(self, total: Tensor, count: int) -> None:
        super().update(total / max(count, 1), 1)


class Undivided(Sums):
    def compute(self) -> Any:
        return self.total


class Last(Sums):
    def update(self, total: Tensor, count: int) -> None:
        self.total, self.count = float(total), count


class Attached(Sums):
    def update(self, total: Tensor, count: int) -> None:
        self.total, self.count = self.total + total, self.count + count


class Neighbours(Sums):
    others: ClassVar[list[Sums]] = []

    def reset(self) -> None:
        super().reset()
        for other in self.others:
            other.total = 1.0 if other is not self else 0.0
        self.others.append(self)


@pytest.mark.parametrize(
    ("make", "claim", "message"),
    [
        (Unweighted, "MTR-MEAN-001", "it is the mean of the batches' means"),
        (Undivided, "MTR-MEAN-001", "it is the sum, which is not divided"),
        (Last, "MTR-MEAN-001", "it is the last batch"),
        (Attached, "MTR-GRAPH-001", "the graph is kept by total and the result"),
        (Attached, "MTR-NARROW-001", "the ones are lost"),
        (Neighbours, "MTR-RESET-001", "another metric changes from -50 to"),
    ],
)
def test_wrong_metrics_are_refuted(make: Any, claim: str, message: str) -> None:
    messages = TRYING.wrong(make)
    assert re.search(message, messages.get(claim, "")), messages
