"""Predicates over a bounded box: the learning rate at the ends of a schedule, and between them."""

from __future__ import annotations

import math
from typing import Any

SHAPES = ("cosine", "linear", "constant", "wsd")
PEAK, END = 3.0, 0.25
STEEPEST = {"cosine": math.pi / 2, "linear": 1.0, "constant": 0.0, "wsd": 1.0}
"""The largest slope of each shape, from 1 to 0 over a way of 1."""
ROUNDING = 1e-12


def prove_ends_and_no_jump(subject: Any, shape: int, warmup: int, total: int, decay: int) -> None:
    """decay: 0 for the default, a fifth of the run, rounded up."""
    name = SHAPES[shape]
    length = decay or -(-total // 5)
    given = {"peak": PEAK, "warmup": warmup, "total": total, "shape": name, "end": END, "decay": decay or None}
    rates = [subject.learning_rate(step, **given) for step in range(1, total + 3)]
    where = f"{name} of {total} steps, {warmup} of them warm-up, decay {decay}: {rates}"
    if warmup:
        assert math.isclose(rates[0], PEAK / warmup, rel_tol=ROUNDING), f"step 1 is not peak / warmup: {where}"
    if 1 <= warmup < total:
        assert rates[warmup - 1] == PEAK, f"step {warmup} has not the peak: {where}"
    if warmup < total:
        last = PEAK if name == "constant" else PEAK * END
        ends = [math.isclose(rate, last, rel_tol=ROUNDING) for rate in rates[total - 1 :]]
        assert all(ends), f"the last step and those after it have not {last}: {where}"
    way = min(length, total - warmup) if name == "wsd" else total - warmup
    fall = STEEPEST[name] * PEAK * (1 - END) / max(1, way)
    for before, after in zip(rates[max(0, warmup - 1) :], rates[max(1, warmup) :], strict=False):
        assert -ROUNDING <= before - after <= fall + ROUNDING, f"from {before} to {after}, at most {fall}: {where}"
