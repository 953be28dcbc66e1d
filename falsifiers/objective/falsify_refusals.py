"""Attacks on the checks of a value that changes during a run: what it cannot be is refused before the run.

The subject has `Annealed`, as `training.annealing` does.
"""

from __future__ import annotations

import math
from typing import Any

from falsifiers.support.oracles import assert_refused

TEMPERATURES = (1e-4, 1e4)
NOT_A_NUMBER = (math.nan, math.inf, -math.inf, True, "0.5", None, 1 + 0j)

SHAPES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    *(
        (f"the shape {shape!r}", {"end": 0.0, "shape": shape}, (repr(shape), "constant", "linear", "cosine", "'beta'"))
        for shape in ("exponential", "Linear", "", None)
    ),
    ("an unknown shape without an end", {"shape": "step"}, ("'step'", "constant", "linear", "cosine")),
    *(
        (f"{shape} without an end", {"shape": shape}, ("missing end", shape, "'beta'"))
        for shape in ("linear", "cosine")
    ),
    *((f"a constant with the end {end}", {"end": end}, ("constant", repr(end), "'beta'")) for end in (0.0, 0.5, 0.7)),
]
NUMBERS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    *((f"the start {x!r}", {"start": x}, ("start", repr(x), "'beta'", "0 to 1e+30")) for x in NOT_A_NUMBER),
    *(
        (f"the end {x!r}", {"end": x, "shape": "linear"}, ("end", repr(x), "'beta'", "0 to 1e+30"))
        for x in NOT_A_NUMBER
        if x is not None
    ),
    *(
        (f"the {place} {x!r}", {"end": 0.5, "shape": "cosine", place: x}, (place, repr(x), "0 to 1e+30"))
        for place in ("start", "end")
        for x in (-5e-324, -1.0, 1.1e30)
    ),
    *(
        (
            f"a temperature with {place} {x!r}",
            {"start": 2.0, "end": 1.0, "shape": "linear", "bounds": TEMPERATURES, place: x},
            (place, repr(x), "0.0001 to 10000"),
        )
        for place in ("start", "end")
        for x in (0.0, 9.9e-5, 10001.0, -1.0, math.nan)
    ),
]
WARMUPS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    *((f"the warm-up {x!r}", {"warmup": x}, ("warm-up", repr(x), "'beta'")) for x in (-1, 2.0, True, "3", None)),
    ("a temperature that warms up", {"start": 2.0, "warmup": 1, "bounds": TEMPERATURES}, ("warm-up", "rises from 0")),
]
ACCEPTED: list[dict[str, Any]] = [
    {},
    {"start": 0},
    {"start": 1e30},
    {"start": 0.0, "end": 1e30, "shape": "cosine", "warmup": 10**9},
    {"start": 1, "end": 0, "shape": "linear", "warmup": 1},
    {"start": 1e-4, "end": 1e4, "shape": "linear", "bounds": TEMPERATURES},
    {"start": 1e4, "bounds": TEMPERATURES},
]


def falsify_invalid_values_are_refused(subject: Any) -> None:
    for what, changes, words in (*SHAPES, *NUMBERS, *WARMUPS):
        given = {"start": 0.7, "name": "beta", **changes}
        assert_refused(what, lambda given=given: subject.Annealed(**given), *words)
    for given in ACCEPTED:
        subject.Annealed(**{"start": 0.7, **given})


def falsify_steps_that_do_not_exist_are_refused(subject: Any) -> None:
    for annealed in (subject.Annealed(0.7), subject.Annealed(1.0, 0.0, "linear"), subject.Annealed(1.0, warmup=5)):
        for step, total in ((0, 10), (-1, 10), (1, 0), (0, 0), (5, -5)):
            what = f"step {step} of {total}"
            assert_refused(what, lambda a=annealed, s=step, t=total: a.at(s, t), str(step), str(total), "from 1")
