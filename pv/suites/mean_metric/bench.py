"""Create metrics of the subject, add batches, read their mean, and find the features that they lack."""

import copy
import math
from pathlib import Path
from typing import Any

import torch

from pv.suites.bench import CallableBench, parameters_of

UPDATE, READ, MERGE = ("update", "add"), ("compute", "result", "avg", "mean", "average"), ("merge", "merge_state")
WEIGHTS = ("weight", "weights", "n", "count", "num", "num_tokens", "tokens")
WRITE = """cannot call {name}: {why}. Write a class, or a function that returns such an object, and pass it:

    class Metric:  # takes no arguments
        def update(self, value, weight): ...  # the mean of a batch and its weight, or `total` and its count
        def compute(self): ...  # the mean over all
        def reset(self): ...  # optional, as `merge(other)`, `state_dict` and `load_state_dict`

    Metric.takes = "mean"  # or "sum": what `update` takes; a first parameter named total or sum is a sum
    Metric.empty = 0.0  # what it documents without updates; without this line NaN, None or an error"""


class Run:
    """A metric."""

    def __init__(self, bench: "Bench") -> None:
        self.bench, self.metric = bench, bench.subject()

    def add(self, mean: float, weight: int = 1, dtype: torch.dtype = torch.float32, *, tracked: bool = False) -> "Run":
        """Add a batch by its mean, which is NaN if it has no weight."""
        value = mean * weight if self.bench.sums and weight else 0.0 if self.bench.sums else mean
        tensor = torch.tensor(value, dtype=dtype, requires_grad=tracked)
        weights = {self.bench.weight: weight} if self.bench.weight else {}
        # Times 1: with a graph, as a loss has it in a loop, and no leaf.
        getattr(self.metric, self.bench.update)(tensor * 1, **weights)
        return self

    def answer(self) -> Any:
        reader = getattr(self.metric, self.bench.read)
        return reader() if callable(reader) else reader

    def mean(self) -> float:
        return float(self.answer())

    def merged(self, other: "Run") -> "Run":
        """Merge another metric into this one; if that takes a list, a list of it."""
        merge = getattr(self.metric, self.bench.merge)
        many = any(name in parameters_of(merge) for name in ("metrics", "others"))
        merge([other.metric] if many else other.metric)
        return self

    def restored(self, other: "Run") -> "Run":
        self.metric.load_state_dict(copy.deepcopy(other.metric.state_dict()))
        return self


class Bench(CallableBench):
    """A class or function of no arguments that makes a metric. takes, empty: as in the text `WRITE`."""

    write = WRITE

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        try:
            metric = make()
        except Exception as error:
            raise self.cannot_call(f"{type(error).__name__}: {error}") from error
        self.update, self.read, self.merge = (
            next((name for name in names if hasattr(metric, name)), "") for names in (UPDATE, READ, MERGE)
        )
        if not self.update or not self.read:
            raise self.cannot_call(f"it has none of {', '.join(READ if self.update else UPDATE)}")
        names = list(parameters_of(getattr(metric, self.update)))
        self.weight = next((name for name in WEIGHTS if name in names[1:]), "")
        self.sums = getattr(make, "takes", "sum" if names and names[0] in ("total", "sum") else "mean") == "sum"
        try:
            self.start().add(1.0).mean()
        except Exception as error:
            raise self.cannot_call(f"{type(error).__name__}: {error}") from error
        stateful = hasattr(metric, "load_state_dict") and hasattr(metric, "state_dict")
        self.set_features(
            {
                "weight": "" if self.weight else f"update takes none of {', '.join(WEIGHTS)}",
                "reset": "" if hasattr(metric, "reset") else "it has no reset",
                "merge": "" if self.merge else f"it has none of {', '.join(MERGE)}",
                "state": "" if stateful and self.start().add(1.0).metric.state_dict() else "it saves no state",
            }
        )

    def start(self) -> Run:
        run = Run(self)
        self.used.append(run)
        return run

    def filled(self, batches: list[tuple[float, int]]) -> Run:
        run = self.start()
        for mean, weight in batches:
            run.add(mean, weight)
        return run


def bench(subject: object, directory: Path | None) -> Bench:
    """Return a bench of a class or a function; raise `CannotCall` with what to write for everything else."""
    return Bench(subject)


def near(one: float, other: float, tolerance: float = 1e-5) -> bool:
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
