"""Attacks on the formats of the log lines of a run, and on the patterns that parse them.

The subject has `ProgressCallback` as `training.progress` does, or formats, `pattern` and `metrics_line` as
`training.formats` does.
"""

from __future__ import annotations

import io
import math
from string import Formatter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_observability.falsify_progress_lines import context
from falsifiers.support.run_lines import EVALUATION, METRICS_LINE, changed, woven
from reference_trainer.callbacks.lines import Lines


@given(
    name=st.sampled_from(["STEP_LINE", "EPOCH_LINE", "SMOKE_SUMMARY_LINE", "SMOKE_PROJECTION_LINE"]),
    count=st.integers(0, 10**9),
    real=st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -math.inf]),
)
def falsify_patterns_parse_their_lines(subject: Any, name: str, count: int, real: float) -> None:
    form, pattern = getattr(subject, name), subject.pattern(getattr(subject, name))
    fields = [(field, spec) for _, field, spec, _ in Formatter().parse(form) if field is not None]
    numbers = [format((real if spec else count) + place, spec or "") for place, (_, spec) in enumerate(fields)]
    line = woven(form, numbers)
    match = pattern.fullmatch(line)
    assert match is not None, f"{pattern.pattern!r} does not match {line!r}"
    read, written = match.groupdict(), {field: number for (field, _), number in zip(fields, numbers, strict=True)}
    assert read == written, f"{line!r} was parsed as {read}; expected {written}"
    for wrong in changed(form, numbers):
        assert pattern.fullmatch(wrong) is None, f"{pattern.pattern!r} matches {wrong!r} too"


LOGGED = ("loss", "hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "teacher_perplexity")
VALUES = {
    2.34561: "2.346",
    0.0: "0",
    4.85165195e8: "4.852e+08",
    1.25e-5: "1.25e-05",
    17.0: "17",
    math.nan: "nan",
    math.inf: "inf",
    -math.inf: "-inf",
}
METRICS = st.dictionaries(st.sampled_from([*LOGGED, "agreement", "total"]), st.sampled_from(list(VALUES)))


@given(metrics=METRICS)
@example(metrics=dict.fromkeys(reversed(LOGGED), 17.0))
@example(metrics={"agreement": 17.0})
def falsify_metrics_line(subject: Any, metrics: dict[str, float]) -> None:
    shown = [f"{name}={VALUES[metrics[name]]}" for name in LOGGED if name in metrics]
    expected = METRICS_LINE.format(metrics=" ".join(shown)) if shown else ""
    seen = subject.metrics_line(metrics)
    assert seen == expected, f"the line of {metrics} is {seen!r}; expected {expected!r}"


EVALUATED = [f"eval/{name}" for name in ("hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "agreement")]
HELD_BACK = st.dictionaries(
    st.sampled_from([*EVALUATED, "eval/teacher_loss", "eval/kl_at_T"]), st.sampled_from(list(VALUES))
)


@given(step=st.integers(1, 99), metrics=HELD_BACK)
@example(step=3, metrics=dict.fromkeys(reversed(EVALUATED), 17.0))
def falsify_evaluation_line(subject: Any, step: int, metrics: dict[str, float]) -> None:
    names = [name for name in EVALUATED if name in metrics] + sorted(metrics.keys() - {*EVALUATED})
    shown = " ".join(f"{name}={VALUES[metrics[name]]}" for name in names)
    stream = io.StringIO()
    callback = subject.ProgressCallback(lines=Lines(stream))
    callback.on_evaluate(context((1, 99), step, 1.0, validation_metrics=metrics))
    expected = EVALUATION.format(step=step, total=99, metrics=shown) + "\n" if shown else ""
    assert stream.getvalue() == expected, f"the line is {stream.getvalue()!r}; expected {expected!r}"
