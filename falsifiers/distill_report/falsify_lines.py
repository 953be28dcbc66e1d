"""Attacks on the lines of a smoke run, their numbers and their order.

Lines are parsed with independent regular expressions and arithmetic. The subject is `pipeline.smoke`, or
`pipeline.distill` where a run prints them.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_report.summaries import PROJECTION, SUMMARY, result_of
from falsifiers.distill_smoke.cases import changes, distilled, finished, place, planned, stopping_at
from falsifiers.distill_smoke.falsify_steps import assert_no_step_ran
from falsifiers.support.run_lines import SMOKE_END, SMOKE_PLANNED, SMOKE_PROJECTION, SMOKE_START, STEP, matcher

LOSSES = st.floats(0, 1e6) | st.sampled_from([math.nan, math.inf])


def _assert_rounded(what: str, text: str, exact: Fraction) -> None:
    """`text` is `exact`, rounded to its decimals; relative errors of 1e-12 before the rounding are allowed."""
    half = Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
    apart = abs(Fraction(text) - exact)
    assert apart <= half + abs(exact) / 10**12, f"{what} is printed as {text}; expected {float(exact)}"


def _assert_loss(what: str, text: str, loss: float) -> None:
    if math.isfinite(loss):
        _assert_rounded(what, text, Fraction(loss))
    else:
        assert text == str(loss), f"{what} is printed as {text}; expected {loss}"


@given(
    steps=st.integers(1, 10**6),
    elapsed_s=st.floats(1e-3, 1e7),
    losses=st.tuples(LOSSES, LOSSES, LOSSES),
    tokens=st.integers(1, 10**9),
    project_to_steps=st.integers(1, 10**9) | st.just(50000),
    planned_steps=st.integers(1, 10**9),
)
def falsify_summary_reports_exact_numbers(
    subject: Any,
    steps: int,
    elapsed_s: float,
    losses: tuple[float, ...],
    tokens: int,
    project_to_steps: int,
    planned_steps: int,
) -> None:
    initial, final, best = losses
    fields = {"initial_loss": initial, "final_loss": final, "best_loss": best, "tokens": tokens}
    result = result_of(steps_completed=steps, elapsed_s=elapsed_s, **fields)
    lines = subject.summary(result, project_to_steps, planned_steps)
    first, second = SUMMARY.fullmatch(lines[0]), PROJECTION.fullmatch(lines[1])
    third = matcher(SMOKE_PLANNED, steps=planned_steps).fullmatch(lines[2])
    assert first and second and third, f"{lines} do not have the documented format"
    assert (int(first[1]), int(second[1])) == (steps, project_to_steps), f"{lines}: {steps} steps, {project_to_steps}"
    elapsed = Fraction(elapsed_s)
    seconds = elapsed / steps * project_to_steps
    _assert_rounded("the time", first[2], elapsed)
    _assert_loss("the first loss", first[3], initial)
    _assert_loss("the last loss", first[4], final)
    _assert_rounded("the throughput", first[5], steps / elapsed)
    for name, text, unit in (("hours", second[2], 3600), ("minutes", second[3], 60), ("seconds", second[4], 1)):
        _assert_rounded(f"the projection in {name}", text, seconds / unit)
    _assert_rounded("the time of the planned run", third["seconds"], elapsed / steps * planned_steps)


@given(n=st.integers(1, 15), project_to_steps=st.sampled_from([31, 50000]))
def falsify_lines_are_in_order(subject: Any, device: str, n: int, project_to_steps: int) -> None:
    with place() as where:
        settings = {"device": device, "smoke": n, "log_every": 1, "project_to_steps": project_to_steps}
        lines = finished(subject, where, **settings).lines
    marks = [
        matcher(SMOKE_START, steps=n).pattern,
        matcher(STEP, step=1).pattern,
        SUMMARY.pattern,
        matcher(SMOKE_PROJECTION, steps=project_to_steps).pattern,
        matcher(SMOKE_PLANNED, steps=planned()).pattern,
        "smoke check: go",
        re.escape(SMOKE_END),
    ]
    at = [[place for place, line in enumerate(lines) if re.fullmatch(mark, line)] for mark in marks]
    assert all(len(places) == 1 for places in at), f"of {marks}, in this order, {at} are the places in {lines}"
    places = [place for (place,) in at]
    assert places == sorted(places) and places[-1] == len(lines) - 1, f"the order of {marks} is {places} in {lines}"
    assert places[3] == places[2] + 1, f"a line is printed between summary and projection: {lines}"


def falsify_run_without_steps_is_an_error(subject: Any, device: str) -> None:
    with place() as where:
        before = where.listing()
        callbacks = [stopping_at("on_train_begin", 1)]
        ran = distilled(subject, where, device=device, smoke=5, callbacks=callbacks)
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed; expected no file"
    assert_no_step_ran(ran)
