"""Claims about every running mean. Batches are pairs of a mean and a weight, such as a number of tokens."""

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from pv.suites.mean_metric.bench import Bench, near

Batches = list[tuple[float, int]]
MEANS = st.integers(-8, 8).filter(bool).map(float)
BATCHES = st.lists(st.tuples(MEANS, st.integers(1, 9)), min_size=2, max_size=6, unique_by=lambda batch: batch[0])
LARGE, TOKENS = 4096.0, 2**24  # from where float16 and float32 do not count by 1


def right(batches: Batches) -> float:
    return sum(mean * weight for mean, weight in batches) / sum(weight for _, weight in batches)


def even(bench: Bench, batches: Batches) -> Batches:
    """Return the batches, with the weight 1 if the metric takes none."""
    return [(mean, weight if bench.weight else 1) for mean, weight in batches]


def check(actual: float, batches: Batches, circumstance: str = "") -> None:
    means, weights = zip(*batches, strict=True)
    total = right(batches) * sum(weights)
    mistakes = {"the mean of the batches' means": sum(means) / len(means), "the sum, which is not divided": total}
    mistakes |= {"the last batch": means[-1], "the first batch": means[0]}
    mistakes |= {"the sum divided by the number of batches": total / len(means)}
    mistakes |= {"the sum of the means divided by all weights": sum(means) / sum(weights)}
    causes = [f"; it is {name}" for name, wrong in mistakes.items() if near(actual, wrong)]
    assert near(actual, right(batches)), (
        f"of batches with the means {[*means]} and the weights {[*weights]}, the mean is {actual:.7g}{circumstance}, "
        f"not {right(batches):.7g}{''.join(causes[:1])}"
    )


@given(batches=BATCHES)
def falsify_weighted_mean(bench: Bench, batches: Batches) -> None:
    run = bench.start()
    for k, (mean, weight) in enumerate(batches, 1):
        run.add(mean, weight)
        check(run.mean(), batches[:k])


@given(batches=BATCHES)
def falsify_split_and_order(bench: Bench, batches: Batches) -> None:
    whole = bench.start().add(right(batches), sum(weight for _, weight in batches)).mean()
    single = bench.filled([(mean, 1) for mean, weight in batches for _ in range(weight)]).mean()
    turned = bench.filled(batches[::-1]).mean()
    place = f"batches {batches} have the mean {bench.filled(batches).mean():.7g}"
    for name, actual in (("in one", whole), ("token by token", single), ("in the other order", turned)):
        assert near(actual, bench.filled(batches).mean()), f"{place}, {name} {actual:.7g}"


@given(_=st.just(0))
def falsify_empty(bench: Bench, _: int) -> None:
    documented = getattr(bench.subject, "empty", None)
    try:
        actual: Any = bench.start().answer()
    except Exception:  # it refuses to answer
        return
    actual = None if actual is None or math.isnan(float(actual)) else float(actual)
    assert actual == documented, (
        f"without updates, the mean is {actual}, not {'NaN' if documented is None else documented}; "
        "a documented number is the attribute `empty`"
    )


@given(batches=BATCHES, place=st.integers(0, 6))
def falsify_batch_without_weight(bench: Bench, batches: Batches, place: int) -> None:
    # The mean of no tokens is 0 / 0 in most losses; a weight of 0 must remove even NaN.
    for mean in (math.nan, 0.0, 7.0):
        run = bench.filled(batches[:place]).add(mean, 0)
        for batch in batches[place:]:
            run.add(*batch)
        value = "sum 0" if bench.sums else f"mean {mean}"
        check(run.mean(), batches, f" after a batch of weight 0 and {value}")


@given(batches=BATCHES)
def falsify_reset(bench: Bench, batches: Batches) -> None:
    batches = even(bench, batches)
    run, other = bench.filled([(99.0, 5)]), bench.filled([(-50.0, 3)])
    run.metric.reset()
    for batch in batches:
        run.add(*batch)
    check(run.mean(), batches, " after a reset")
    assert near(other.mean(), -50.0), f"a metric of its own changes from -50 to {other.mean():.7g}"


@given(batches=BATCHES, later=BATCHES)
def falsify_merge(bench: Bench, batches: Batches, later: Batches) -> None:
    batches, later = even(bench, batches), even(bench, later)
    check(bench.filled(batches).merged(bench.filled(later)).mean(), [*batches, *later], " of two merged metrics")
    check(bench.start().merged(bench.filled(later)).mean(), later, " of an empty metric and another, merged")


@given(batches=BATCHES, later=BATCHES)
def falsify_restored(bench: Bench, batches: Batches, later: Batches) -> None:
    batches, later = even(bench, batches), even(bench, later)
    run = bench.start().restored(bench.filled(batches))
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
    assert near(run.mean(), expected, 5e-3), (
        f"of {LARGE:.0f} and {count} ones in {dtype}, the mean is {run.mean():.7g}, not {expected:.7g}{lost}"
    )


@given(count=st.integers(100, 200))
def falsify_many_tokens(bench: Bench, count: int) -> None:
    run = bench.start().add(0.0, TOKENS)
    for _ in range(count):
        run.add(float(TOKENS), 1)
    actual, expected = run.mean(), count * TOKENS / (TOKENS + count)
    lost = f"; the {count} are not counted" if near(actual, count, 1e-7) else ""
    assert near(actual, expected, 1e-6), (
        f"after {TOKENS} tokens of 0, {count} of {TOKENS}, the mean is {actual:.9g}, not {expected:.9g}{lost}"
    )


@given(mean=MEANS)
def falsify_no_graph(bench: Bench, mean: float) -> None:
    run = bench.start().add(mean, tracked=True).add(mean, tracked=True)
    kept = [name for name, part in vars(run.metric).items() if getattr(part, "requires_grad", False)]
    kept += ["the result"] if getattr(run.answer(), "requires_grad", False) else []
    assert not kept, f"after updates with tensors that have a graph, {' and '.join(kept)} still has it: memory grows"
