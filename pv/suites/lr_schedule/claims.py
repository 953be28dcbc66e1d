"""Claims about every schedule: range, warm-up, decay, end, groups, resuming. Steps count from 0."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.lr_schedule.bench import BASES, LEAST, PEAK, Bench

AFTER = 6  # steps after the planned end
PLANS: dict[str, Any] = {"warmup": st.integers(1, 8), "decay": st.integers(10, 30)}


def plan(bench: Bench, warmup: int, decay: int) -> tuple[int, int, list[float]]:
    """Return the planned steps, the step of the peak, and the rates."""
    total = warmup + decay
    rates = bench.rates(warmup, total, total + AFTER)
    return total, next(k for k, rate in enumerate(rates) if near(rate, max(rates))), rates


def near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)


def excerpt(rates: list[float], at: int) -> str:
    """Return the rates around a step."""
    return ", ".join(f"{k}: {rates[k]:.6g}" for k in range(max(0, at - 2), min(len(rates), at + 3)))


def check_range(rates: list[float], plan: str) -> None:
    for k, rate in enumerate(rates):
        assert math.isfinite(rate) and rate >= 0, f"{plan}, the rate is {rate} in step {k} ({excerpt(rates, k)})"


@given(**PLANS)
def falsify_range(bench: Bench, warmup: int, decay: int) -> None:
    total = warmup + decay
    check_range(bench.rates(warmup, total, total + AFTER), f"with a warm-up of {warmup} of {total} steps")


@given(**PLANS)
def falsify_peak_after_warmup(bench: Bench, warmup: int, decay: int) -> None:
    total, peak, rates = plan(bench, warmup, decay)
    fall = next((k for k in range(1, peak + 1) if rates[k] < rates[k - 1]), 0)
    assert not fall, f"the rate falls in step {fall} of {warmup} warm-up steps ({excerpt(rates, fall)})"
    late = "one step late" if peak == warmup + 1 else "late" if peak > warmup else "early"
    # Two conventions: the warm-up ends in its last step, or in the step after it.
    assert peak in (warmup - 1, warmup), (
        f"with a warm-up of {warmup} of {total} steps, the greatest rate comes first in step {peak}, {late} "
        f"({excerpt(rates, warmup)}); steps count from 0 unless the attribute `first` is 1"
    )
    if bench.schedules or bench.arguments["peak"]:
        assert near(rates[peak], PEAK), f"the greatest rate is {rates[peak]:.9g}; the peak is {PEAK}"


@given(**PLANS)
def falsify_decay(bench: Bench, warmup: int, decay: int) -> None:
    total, peak, rates = plan(bench, warmup, decay)
    rise = next((k for k in range(peak + 1, total) if rates[k] > rates[k - 1] * (1 + 1e-9)), 0)
    assert not rise, (
        f"with {total} steps and the peak in step {peak}, the rate rises in step {rise} ({excerpt(rates, rise)})"
    )


@given(**PLANS)
def falsify_end(bench: Bench, warmup: int, decay: int) -> None:
    total, peak, rates = plan(bench, warmup, decay)
    lowest = min(rates[peak:])
    end = next(k for k in range(peak, len(rates)) if near(rates[k], lowest))
    actual = rates[min(total, len(rates) - 1)]
    assert end <= total, (
        f"of {total} steps, the least rate comes in step {end}, after the end ({excerpt(rates, total)})"
    )
    assert near(rates[-1 if len(rates) <= total else total], lowest) or near(rates[total - 1], lowest), (
        f"of {total} steps, the least rate {lowest:.6g} comes in step {end}; at the end it is {actual:.6g}"
    )
    name, part = bench.arguments["least"], LEAST * max(rates)
    # The minimum is a rate in some libraries, a factor of the peak in others.
    right = not name or near(lowest, LEAST) or near(lowest, part)
    assert right, f"the least rate is {lowest:.6g}; {name} is {LEAST}, which as a factor is {part:.6g}"


@given(**PLANS)
def falsify_rate_after_the_end(bench: Bench, warmup: int, decay: int) -> None:
    total, _, rates = plan(bench, warmup, decay)
    moved = next((k for k in range(total + 1, len(rates)) if not near(rates[k], rates[total])), 0)
    assert not moved, f"after the planned {total} steps, the rate changes in step {moved} ({excerpt(rates, moved)})"


@given(total=st.integers(10, 30))
def falsify_edges(bench: Bench, total: int) -> None:
    plans = [(0, total, f"without warm-up of {total} steps")]
    plans += [(total, total, f"with a warm-up of {total} of {total} steps")] if bench.arguments["total"] else []
    for warmup, planned, name in plans:
        try:
            rates = bench.rates(warmup, planned, planned + AFTER)
        except ZeroDivisionError as error:
            raise AssertionError(f"{name}, it divides by zero") from error
        except ValueError:  # it refuses such a plan
            continue
        check_range(rates, name)
        assert warmup or near(rates[0], max(rates)), f"{name}, step 0 has not the greatest rate ({excerpt(rates, 0)})"


@given(at=st.integers(0, 40), **PLANS)
def falsify_restored(bench: Bench, at: int, warmup: int, decay: int) -> None:
    total = warmup + decay
    at = min(at, total - 4)
    run, restored, fresh = (bench.scheduled(warmup, total) for _ in range(3))
    for _ in range(at):
        run.step()
    restored.restore(run)
    for k in range(at, at + 4):
        pairs = list(zip(run.rates(), restored.rates(), fresh.rates(), strict=True))
        for group, (right, actual, anew) in enumerate(pairs):
            cause = f"; {anew:.6g} is that of a schedule that starts anew" if near(actual, anew) else ""
            assert near(actual, right), (
                f"restored in step {at} of {total}, group {group} has the rate {actual:.6g} in step {k}, "
                f"not {right:.6g}{cause}"
            )
        run.step(), restored.step(), fresh.step()


@given(**PLANS)
def falsify_each_group(bench: Bench, warmup: int, decay: int) -> None:
    total = warmup + decay
    run, alone = bench.scheduled(warmup, total), bench.scheduled(warmup, total, BASES[1:])
    for k in range(total):
        (first, second), (alone_rate,) = run.rates(), alone.rates()
        cause = "; it is that of the first group" if near(first, second) else ""
        assert near(second, alone_rate) or near(second, first * BASES[1] / BASES[0]), (
            f"in step {k} the rates of groups that start with {BASES[0]} and {BASES[1]:.6g} are {first:.6g} and "
            f"{second:.6g}{cause}; alone, the second has {alone_rate:.6g}"
        )
        run.step(), alone.step()


@given(**PLANS)
def falsify_function_of_the_step(bench: Bench, warmup: int, decay: int) -> None:
    total = warmup + decay
    rates = bench.rates(warmup, total, total)
    if bench.schedules:
        run, other = bench.scheduled(warmup, total), bench.scheduled(warmup, total)
        actual = [run.rates()[0]]
        while len(actual) < total:
            other.step()
            actual.append(run.step()[0])
    else:
        first, rate = getattr(bench.subject, "first", 0), bench.bind(warmup, total)
        actual = [float(rate(step)) for step in reversed(range(first, first + total))][::-1]
    off = next((k for k in range(total) if not near(actual[k], rates[k])), -1)
    circumstance = "beside another schedule" if bench.schedules else "asked from the last step to the first"
    assert off < 0, f"step {off} has the rate {rates[off]:.6g}, and {actual[off]:.6g} if {circumstance}"
