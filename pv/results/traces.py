"""Reads from the trace of a reference run what a report draws: the order of its events, and its loss by step."""

import math
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from pv.results.trial import RunTrace

MAX_EVENTS, MAX_POINTS = 200, 300


def trace_of(run: str, device: str, seconds: float, events: Iterable[Mapping[str, Any]]) -> RunTrace:
    """Return what a report shows of a trace. Events without a name are left out."""
    named = [(event["event"], event) for event in events if isinstance(event.get("event"), str)]
    rows = tuple((name, sum(1 for _ in same)) for name, same in groupby(name for name, _ in named))
    losses = [point for _, event in named if (point := _point(event)) is not None]
    return RunTrace(run=run, device=device, seconds=seconds, events=rows[:MAX_EVENTS], losses=_thinned(losses))


def _point(event: Mapping[str, Any]) -> tuple[float, float] | None:
    step, loss = _number(event.get("step")), _number(event.get("loss"))
    return (step, loss) if step is not None and loss is not None else None


def _number(value: Any) -> float | None:
    """Return a finite number as a float, None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return None if math.isnan(value) else float(value)


def _thinned(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return at most `MAX_POINTS` of the points, the first and the last among them."""
    if len(points) <= MAX_POINTS:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[index * last // (MAX_POINTS - 1)] for index in range(MAX_POINTS))
