"""Attacks on the lines of a metrics file and on their reader.

The subject is `reference_trainer.training.metrics_file`, or has its names.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.metrics_files.lines import SOME, STEPS, assert_fits, context, directory, in_json, refusal, strict_lines

Fields = dict[str, Any]
ODD = {**SOME, "elapsed_s": math.inf, "metrics": {"loss": math.nan, "kl": -math.inf, "perplexity": math.inf}}


@given(steps=st.lists(STEPS, min_size=1, max_size=4))
@example(steps=[ODD, {**SOME, "learning_rate": None}, {**SOME, "metrics": {"agreement": 1}}])
def falsify_each_logged_step_is_a_strict_line(subject: Any, steps: list[Fields]) -> None:
    with directory() as place:
        callback = subject.MetricsCallback(place / "metrics")
        for number, fields in enumerate(steps, 1):
            callback.on_log(context(number, fields))
        callback.close()
        lines = strict_lines(place / "metrics")
    assert_fits(subject.schema(), lines)
    for number, (fields, line) in enumerate(zip(steps, lines, strict=True), 1):
        expected = {"step": number, **in_json(fields)}
        assert line == expected, f"line {number} is {line}; expected {expected}"


@given(steps=st.lists(STEPS, max_size=4), cut=st.integers(0, 400))
@example(steps=[ODD, {**SOME, "learning_rate": None}], cut=0)
def falsify_lines_are_read_back(subject: Any, steps: list[Fields], cut: int) -> None:
    with directory() as place:
        path, callback = place / "metrics", subject.MetricsCallback(place / "metrics")
        ends = [0]
        for number, fields in enumerate(steps, 1):
            callback.on_log(context(7 * number, fields))
            ends.append(callback.length)
        kept = max(callback.length - cut, 0)
        path.write_bytes(path.read_bytes()[:kept])
        read = subject.read_metrics(path)
    complete = sum(0 < end <= kept for end in ends)
    assert len(read) == complete, f"{kept} of {ends[-1]} bytes have {len(read)} lines; expected {complete}"
    for number, (line, fields) in enumerate(zip(read, steps, strict=False), 1):
        seen = {name: getattr(line, name) for name in ("step", *SOME)}
        expected = {"step": 7 * number, **{name: fields[name] for name in SOME}}
        assert repr(seen) == repr(expected), f"line {number} is read as {seen}; expected {expected}"


GOOD = b'{"step": 3, "epoch": 1, "learning_rate": 0.5, "elapsed_s": 0.25, "tokens": 7, "metrics": {"loss": 1.5}}'
MALFORMED = {
    "no JSON": (b"step 3", "Expecting value"),
    "not UTF-8": (b'"\xff"', "utf-8"),
    "a bare NaN": (GOOD.replace(b"1.5", b"NaN"), "NaN is not JSON"),
    "a number as text": (GOOD.replace(b"1.5", b'"1.5"'), "metrics.loss"),
    "an unknown key": (GOOD.replace(b'"tokens"', b'"more": 1, "tokens"'), "more"),
    "a negative count": (GOOD.replace(b"7", b"-7"), "tokens"),
    "the step before again": (GOOD.replace(b"3", b"2"), "step 2 follows step 2"),
}


@given(before=st.integers(1, 2), after=st.booleans())
def falsify_malformed_lines_are_named(subject: Any, before: int, after: bool) -> None:
    good = [GOOD.replace(b"3", b"%d" % step) for step in range(3 - before, 3)]
    for kind, (text, why) in MALFORMED.items():
        with directory() as place:
            path = place / "metrics"
            path.write_bytes(b"\n".join([*good, text, *[GOOD.replace(b"3", b"8")] * after, b""]))
            said = refusal(functools.partial(subject.read_metrics, path), reference_trainer.DataError)
        expected = f"{path}:{before + 1}: "
        assert said.startswith(expected) and why in said, (
            f"{kind} in line {before + 1}: the error is {said!r}; expected {expected!r} and a reason with {why!r}"
        )


def falsify_unreadable_files_are_named(subject: Any) -> None:
    with directory() as place:
        for path in (place, place / "missing"):
            said = refusal(functools.partial(subject.read_metrics, path), reference_trainer.DataError)
            assert str(path) in said, f"the error is {said!r}; expected one that names {path}"
        (place / "metrics").touch()
        seen = subject.read_metrics(place / "metrics")
        assert seen == [], f"an empty file, as of a run that was killed early, is read as {seen}"
