"""Attacks on the lines that end a run which is not a smoke run. The subject is `reference_trainer.pipeline.report`."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_report.summaries import result_of
from reference_trainer.distillation.step import MetricSum

WHOLE = re.compile(r"([0-9]+) steps in ([0-9]+\.[0-9])s \(([0-9]+\.[0-9]{2}) step/s, ([0-9,]+) (byte|token)s/s\): (.*)")
LOSSES = st.none() | st.tuples(*[st.floats(0, 1e6) | st.just(math.inf)] * 2)


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


@given(losses=LOSSES, ran=RUNS, held=HELD_BACK, unit=st.sampled_from(["byte", "token"]))
def falsify_result_lines_report_the_run(
    subject: Any,
    losses: tuple[float, float] | None,
    ran: dict[str, Any],
    held: dict[str, tuple[float, int]],
    unit: str,
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
