"""The suite `mean-metric`: it calls an implementation of a running mean and claims that the mean is right.

Batches are pairs of a mean and a weight, such as a number of tokens.
"""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from pv.suites.bench import CallableBench, judge, parameters_of

# The usual names of the methods of a metric, and of the parameter of `update` for the weight.
UPDATE, READ, MERGE = ("update", "add"), ("compute", "result", "avg", "mean", "average"), ("merge", "merge_state")
WEIGHTS = ("weight", "weights", "n", "count", "num", "num_tokens", "tokens")
WRITE = """cannot call {name}: {why}. Write a class, or a function that returns such an object, and pass it:

    class Metric:  # takes no arguments
        def update(self, value, weight): ...  # value: the mean of a batch, or its sum
        def compute(self): ...  # returns the mean over all batches
        def reset(self): ...  # optional, like `merge(other)`, `state_dict` and `load_state_dict`

    Metric.takes = "mean"  # or "sum", the default if the first parameter of `update` is named total or sum
    Metric.empty = 0.0  # the documented result without updates; leave out if it is NaN, None or an error"""


class Run:
    """An instance of the metric. This class calls the methods by the names that the metric uses."""

    def __init__(self, bench: "Bench") -> None:
        self.bench, self.metric = bench, bench.subject()

    def add(self, mean: float, weight: int = 1, dtype: torch.dtype = torch.float32, *, tracked: bool = False) -> "Run":
        """Add a batch, and return this run.

        Args:
            mean: The mean of the batch; ignored for a batch of weight 0 if the metric takes sums.
            weight: The weight of the batch.
            dtype: The data type of the value.
            tracked: Whether the value has a graph, as a loss has in a training loop.
        """
        value = mean
        if self.bench.takes_sums:
            value = mean * weight if weight else 0.0  # NaN * 0 is NaN
        tensor = torch.tensor(value, dtype=dtype, requires_grad=tracked)
        weights = {self.bench.weight: weight} if self.bench.weight else {}
        # Times 1: like a loss in a training loop, the value is the result of an operation, not a leaf of the graph.
        getattr(self.metric, self.bench.update)(tensor * 1, **weights)
        return self

    def result(self) -> Any:
        """Return the value of the metric without conversion."""
        reader = getattr(self.metric, self.bench.read)
        return reader() if callable(reader) else reader

    def mean(self) -> float:
        """Return the value of the metric as a number."""
        return float(self.result())

    def merge(self, other: "Run") -> "Run":
        """Merge another metric into this one, and return this run."""
        # Some libraries take a list of metrics.
        merge = getattr(self.metric, self.bench.merge)
        takes_list = any(name in parameters_of(merge) for name in ("metrics", "others"))
        merge([other.metric] if takes_list else other.metric)
        return self

    def restore(self, other: "Run") -> "Run":
        """Load the state of another metric, and return this run."""
        self.metric.load_state_dict(copy.deepcopy(other.metric.state_dict()))
        return self


class Bench(CallableBench):
    """Calls a class or function without arguments that returns a metric; `WRITE` describes the metric.

    Attributes:
        update, read, merge: The names of the metric's methods; "" for no method.
        weight: The name of the parameter of `update` for the weight; "" if it has none.
        takes_sums: Whether `update` takes the sum of a batch, not its mean.
    """

    write = WRITE

    def __init__(self, make: Callable[..., object]) -> None:
        super().__init__(make)
        with self.first_call():
            metric = make()
        self.update, self.read, self.merge = (
            next((name for name in names if hasattr(metric, name)), "") for names in (UPDATE, READ, MERGE)
        )
        if not self.update or not self.read:
            self.refuse(f"it has none of {', '.join(READ if self.update else UPDATE)}")
        names = list(parameters_of(getattr(metric, self.update)))
        self.weight = next((name for name in WEIGHTS if name in names[1:]), "")
        self.takes_sums = getattr(make, "takes", "sum" if names and names[0] in ("total", "sum") else "mean") == "sum"
        with self.first_call():
            self.start().add(1.0).mean()
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
        """Return a run with a new metric."""
        run = Run(self)
        self.used.append(run)
        return run

    def filled(self, batches: list[tuple[float, int]]) -> Run:
        """Return a run with a new metric, after updates with batches of these means and weights."""
        run = self.start()
        for mean, weight in batches:
            run.add(mean, weight)
        return run


def bench(subject: Callable[..., object], directory: Path | None) -> Bench:
    """Return the bench of a class or a function; raise `CannotCall` if the suite cannot call it."""
    return Bench(subject)


def near(one: float, other: float, tolerance: float = 1e-5) -> bool:
    """Return whether two means are equal up to a tolerance, relative for numbers above 1."""
    # Metrics may sum in float32, whose rounding is 6e-8 of the largest partial sum.
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)


Batches = list[tuple[float, int]]
MEANS = st.integers(-8, 8).filter(bool).map(float)
BATCHES = st.lists(st.tuples(MEANS, st.integers(1, 9)), min_size=2, max_size=6, unique_by=lambda batch: batch[0])
# Above 4096, float16 and bfloat16 cannot represent every integer; above 2**24, float32 cannot.
LARGE, TOKENS = 4096.0, 2**24


def weighted_mean(batches: Batches) -> float:
    """Return the weighted mean of batches by its definition."""
    return sum(mean * weight for mean, weight in batches) / sum(weight for _, weight in batches)


def fit_weights(bench: Bench, batches: Batches) -> Batches:
    """Return the batches, with all weights 1 if the metric takes no weights."""
    return [(mean, weight if bench.weight else 1) for mean, weight in batches]


def check(actual: float, batches: Batches, circumstance: str = "") -> None:
    """Assert that a mean is the weighted mean of batches.

    Args:
        actual: The mean.
        batches: The batches.
        circumstance: A part of the message, such as " after a reset".

    Raises:
        AssertionError: The mean is wrong; `KnownCause` if a known mistake gives this mean.
    """
    means, weights = zip(*batches, strict=True)
    # By known mistake: the mean that it gives.
    total = weighted_mean(batches) * sum(weights)
    mistakes = {"the mean of the batches' means": sum(means) / len(means), "the sum, which is not divided": total}
    mistakes |= {"the last batch": means[-1], "the first batch": means[0]}
    mistakes |= {"the sum divided by the number of batches": total / len(means)}
    mistakes |= {"the sum of the means divided by all weights": sum(means) / sum(weights)}
    causes = [f"; it is {name}" for name, wrong in mistakes.items() if near(actual, wrong)]
    fault = (
        f"of batches with the means {[*means]} and the weights {[*weights]}, the mean is {actual:.7g}{circumstance}, "
    )
    expected = weighted_mean(batches)
    judge(near(actual, expected), f"{fault}not {expected:.7g}", "".join(causes[:1]))


@given(batches=BATCHES)
def falsify_weighted_mean(bench: Bench, batches: Batches) -> None:
    run = bench.start()
    for k, (mean, weight) in enumerate(batches, 1):
        run.add(mean, weight)
        check(run.mean(), batches[:k])


@given(batches=BATCHES)
def falsify_split_and_order(bench: Bench, batches: Batches) -> None:
    joined = bench.start().add(weighted_mean(batches), sum(weight for _, weight in batches)).mean()
    by_token = bench.filled([(mean, 1) for mean, weight in batches for _ in range(weight)]).mean()
    backwards = bench.filled(batches[::-1]).mean()
    expected = bench.filled(batches).mean()
    for name, actual in (("as one batch", joined), ("token by token", by_token), ("in reverse order", backwards)):
        assert near(actual, expected), f"batches {batches} have the mean {expected:.7g}, but {name} {actual:.7g}"


@given(_=st.just(0))
def falsify_empty(bench: Bench, _: int) -> None:
    documented = getattr(bench.subject, "empty", None)
    try:
        actual = bench.start().result()
    except Exception:  # a metric may raise an error if it is empty
        return
    actual = None if actual is None or math.isnan(float(actual)) else float(actual)
    assert actual == documented, (
        f"without updates, the mean is {actual}, not {'NaN' if documented is None else documented}; "
        "if this is documented, set the attribute `empty`"
    )


@given(batches=BATCHES, place=st.integers(0, 6))
def falsify_batch_without_weight(bench: Bench, batches: Batches, place: int) -> None:
    # The mean of no tokens is 0 / 0 in most losses; a weight of 0 must remove even NaN.
    for mean in (math.nan, 0.0, 7.0):
        run = bench.filled(batches[:place]).add(mean, 0)
        for batch in batches[place:]:
            run.add(*batch)
        value = "sum 0" if bench.takes_sums else f"mean {mean}"
        check(run.mean(), batches, f" after a batch of weight 0 and {value}")


@given(batches=BATCHES)
def falsify_reset(bench: Bench, batches: Batches) -> None:
    batches = fit_weights(bench, batches)
    run, other = bench.filled([(99.0, 5)]), bench.filled([(-50.0, 3)])
    run.metric.reset()
    for batch in batches:
        run.add(*batch)
    check(run.mean(), batches, " after a reset")
    assert near(other.mean(), -50.0), f"another metric changes from -50 to {other.mean():.7g}"


@given(batches=BATCHES, later=BATCHES)
def falsify_merge(bench: Bench, batches: Batches, later: Batches) -> None:
    batches, later = fit_weights(bench, batches), fit_weights(bench, later)
    check(bench.filled(batches).merge(bench.filled(later)).mean(), [*batches, *later], " of two merged metrics")
    check(bench.start().merge(bench.filled(later)).mean(), later, " of an empty metric and another, merged")


@given(batches=BATCHES, later=BATCHES)
def falsify_restored(bench: Bench, batches: Batches, later: Batches) -> None:
    batches, later = fit_weights(bench, batches), fit_weights(bench, later)
    run = bench.start().restore(bench.filled(batches))
    check(run.mean(), batches, " after a restore")
    for batch in later:
        run.add(*batch)
    check(run.mean(), [*batches, *later], " after a restore and further batches")


@given(count=st.integers(50, 99), dtype=st.sampled_from((torch.bfloat16, torch.float16)))
def falsify_narrow_values(bench: Bench, count: int, dtype: torch.dtype) -> None:
    # 4096 + 1 is 4096 in bfloat16 and float16: a sum in the dtype of the values loses every 1.
    run = bench.start().add(LARGE, dtype=dtype)
    for _ in range(count):
        run.add(1.0, dtype=dtype)
    expected = (LARGE + count) / (count + 1)
    lost = "; the ones are lost" if near(run.mean(), LARGE / (count + 1), 5e-3) else ""
    fault = f"of {LARGE:.0f} and {count} ones in {dtype}, the mean is {run.mean():.7g}, not {expected:.7g}"
    judge(near(run.mean(), expected, 5e-3), fault, lost)


@given(count=st.integers(100, 200))
def falsify_many_tokens(bench: Bench, count: int) -> None:
    run = bench.start().add(0.0, TOKENS)
    for _ in range(count):
        run.add(float(TOKENS), 1)
    actual, expected = run.mean(), count * TOKENS / (TOKENS + count)
    lost = f"; the last {count} tokens are not counted" if near(actual, count, 1e-7) else ""
    fault = f"after {TOKENS} zeros and {count} tokens of {TOKENS}, the mean is {actual:.9g}, not {expected:.9g}"
    judge(near(actual, expected, 1e-6), fault, lost)


@given(mean=MEANS)
def falsify_no_graph(bench: Bench, mean: float) -> None:
    run = bench.start().add(mean, tracked=True).add(mean, tracked=True)
    with_graph = [name for name, part in vars(run.metric).items() if getattr(part, "requires_grad", False)]
    with_graph += ["the result"] if getattr(run.result(), "requires_grad", False) else []
    assert not with_graph, (
        f"after updates with tensors that have a graph, the graph is kept by {' and '.join(with_graph)}: memory grows"
    )
