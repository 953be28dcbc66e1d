"""Attacks on the last lines of runs: their numbers and their order.

Lines are parsed with independent regular expressions and arithmetic. Subjects: `pipeline.smoke`, `pipeline.report`, and
`pipeline.distill` where a run prints them.
"""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import changes, distilled, finished, place, planned
from falsifiers.support.acting import acting
from falsifiers.support.run_lines import (
    SMOKE_END,
    SMOKE_PLANNED,
    SMOKE_PROJECTION,
    SMOKE_START,
    SMOKE_SUMMARY,
    STEP,
    matcher,
)
from reference_trainer import Action
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import SmokeError
from reference_trainer.pipeline.distill import DistillResult
from reference_trainer.training.loop import TrainResult

SUMMARY, PROJECTION = matcher(SMOKE_SUMMARY), matcher(SMOKE_PROJECTION)
USUAL = {"initial_loss": 2.0, "final_loss": 1.0, "best_loss": 0.5, "finite": True}
USUAL |= {"steps_completed": 9, "tokens": 12345, "elapsed_s": 4.0, "stopped": False}


def result_of(**fields: Any) -> TrainResult:
    """Return the result of a training loop with these fields."""
    return TrainResult(**{**USUAL, **fields})


def distilled_with(**fields: Any) -> DistillResult:
    """Return the result of a distillation, without models."""
    nothing: Any = None
    usual = {"train": result_of(), "output": Path("out"), "held_back": {}, "checks": ()}
    return DistillResult(**{**usual, "student": nothing, "teacher": nothing, **fields})


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
        callbacks = [acting(lambda: Action.STOP, "on_train_begin")]
        ran = distilled(subject, where, device=device, smoke=5, callbacks=callbacks)
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed; expected no file"
    assert isinstance(ran.error, SmokeError), f"no step ran and the run ended with {ran.error!r}"
    assert re.search(r"\b0\b", str(ran.error)), f"the error does not have the number of steps, 0: {ran.error}"
    assert ran.starting_with("[SMOKE]") == [], f"no step ran, but these lines were printed: {ran.lines}"


WHOLE = re.compile(r"([0-9]+) steps in ([0-9]+\.[0-9])s \(([0-9]+\.[0-9]{2}) step/s, ([0-9,]+) (byte|token)s/s\): (.*)")
LAST_LOSSES = st.none() | st.tuples(*[st.floats(0, 1e6) | st.just(math.inf)] * 2)


RUNS = st.fixed_dictionaries(
    {
        "steps_completed": st.integers(0, 10**6),
        "elapsed_s": st.floats(0, 1e6),
        "tokens": st.integers(0, 10**12),
        "stopped": st.booleans(),
    }
)
HELD_BACK = st.dictionaries(
    st.sampled_from(["hard_loss", "kl_at_1", "agreement", "accuracy"]),
    st.tuples(st.floats(0, 1e9), st.integers(1, 10**9)),
)


@given(losses=LAST_LOSSES, ran=RUNS, held=HELD_BACK, unit=st.sampled_from(["byte", "token"]))
def falsify_result_lines_report_the_run(
    subject: Any, losses: tuple[float, float] | None, ran: dict[str, Any], held: dict[str, tuple[float, int]], unit: str
) -> None:
    first, last = losses or (None, None)
    metrics = {name: MetricSum(total, count) for name, (total, count) in held.items()}
    result = result_of(**ran, initial_loss=first, final_loss=last)
    line, *lines = subject.result_lines(result, metrics, Path("a/place"), unit)
    _assert_whole(line, ran, losses, unit)
    per = dict.fromkeys(("hard_loss", "kl_at_1"), f" nats per {unit}")
    counted = {**dict.fromkeys(held, f" {unit}s"), "accuracy": ""}
    expected = [
        f"held-back {name}: {total / count:.4f}{per.get(name, '')} over {count}{counted[name]}"
        for name, (total, count) in held.items()
    ]
    if "hard_loss" in held:
        total, count = held["hard_loss"]
        expected.append(f"held-back student_perplexity: {math.exp(min(total / count, 20)):.4f}")
    assert lines == [*expected, "wrote a/place"], f"the last lines are {lines}; expected {expected} and the path"


def _assert_whole(line: str, ran: dict[str, Any], losses: tuple[float, float] | None, unit: str) -> None:
    found, steps, elapsed_s = WHOLE.fullmatch(line), ran["steps_completed"], ran["elapsed_s"]
    assert found, f"{line!r} does not have the documented format"
    assert int(found[1]) == steps and found[2] == f"{elapsed_s:.1f}", f"{steps} steps in {elapsed_s} s: {line!r}"
    assert found[5] == unit, f"the data are counted in {unit}s: {line!r}"
    for text, total, decimals in ((found[3], steps, 2), (found[4].replace(",", ""), ran["tokens"], 0)):
        exact = Fraction(total) / Fraction(max(elapsed_s, 1e-9))
        assert abs(Fraction(text) - exact) <= Fraction(1, 2 * 10**decimals) + exact / 10**12, (
            f"{total} in {elapsed_s} s are printed as {text} per second; expected {float(exact)}: {line!r}"
        )
    expected = "distillation loss {:.4f} to {:.4f}".format(*losses) if losses else "no token was scored"
    expected += ", stopped by a callback" if ran["stopped"] else ""
    assert found[6] == expected, f"the line ends with {found[6]!r}; expected {expected!r}"
