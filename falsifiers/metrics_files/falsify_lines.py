"""Attacks on the lines of a metrics file and on their reader.

The subject is `reference_trainer.callbacks.metrics_file`, or has its names.
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.metrics_files.lines import (
    METRICS,
    SOME,
    STEPS,
    assert_fits,
    begin,
    context,
    directory,
    in_json,
    refusal,
    strict_lines,
)

Fields = dict[str, Any]
ODD = {**SOME, "elapsed_s": math.inf, "metrics": {"loss": math.nan, "kl": -math.inf, "perplexity": math.inf}}


@given(steps=st.lists(STEPS, max_size=4), cut=st.integers(0, 400))
@example(steps=[ODD, {**SOME, "learning_rate": None}, {**SOME, "metrics": {"agreement": 1.0}}], cut=0)
def falsify_each_logged_step_is_a_strict_line(subject: Any, steps: list[Fields], cut: int) -> None:
    """cut: bytes that a killed run has lost."""
    with directory() as place:
        path, callback, ends = place / "metrics", subject.MetricsCallback(place / "metrics"), [0]
        for number, fields in enumerate(steps, 1):
            callback.on_log(context(7 * number, fields))
            ends.append(callback.length)
        lines, kept = strict_lines(path), max(callback.length - cut, 0)
        path.write_bytes(path.read_bytes()[:kept])
        read = subject.read_metrics(path)
    assert_fits(subject.schema(), lines)
    for number, (fields, line) in enumerate(zip(steps, lines, strict=True), 1):
        expected = {"step": 7 * number, **in_json(fields)}
        assert line == expected, f"line {number} is {line}; expected {expected}"
    complete = sum(0 < end <= kept for end in ends)
    assert len(read) == complete, f"{kept} of {ends[-1]} bytes have {len(read)} lines; expected {complete}"
    for number, (each, fields) in enumerate(zip(read, steps, strict=False), 1):
        seen = {name: getattr(each, name) for name in ("step", *SOME)}
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


EVALUATED = st.lists(st.tuples(METRICS | st.just({}), st.none() | METRICS | st.just({})), min_size=1, max_size=5)
"""Metrics of each step, and those on held-back text; None for a step that is not evaluated."""


@given(steps=EVALUATED)
@example(steps=[({"loss": 1.0}, None), ({}, {"eval/loss": 2.0}), ({"loss": 3.0}, {"eval/loss": 4.0}), ({}, {})])
def falsify_evaluated_step_has_one_line(subject: Any, steps: list[Any]) -> None:
    with directory() as place:
        path, expected = place / "metrics", dict[int, dict[str, Any]]()
        callback = subject.MetricsCallback(path)
        begin(callback)
        for step, (metrics, held_back) in enumerate(steps, 1):
            fields = {**SOME, "metrics": metrics}
            if metrics:
                callback.on_log(context(step, fields))
                expected[step] = metrics
                _assert_lines(callback, path, expected, f"after step {step} was logged")
            if held_back is not None:
                callback.on_evaluate(context(step, {**fields, "validation_metrics": held_back}))
                if held_back:
                    expected[step] = {**metrics, **held_back}
            _assert_lines(callback, path, expected, f"after step {step} with {metrics} and {held_back}")
        callback.close()
        read = [line.step for line in subject.read_metrics(path)] if path.exists() else []
        assert read == list(expected), f"the reader returns the steps {read}; expected {list(expected)}"


def _assert_lines(callback: Any, path: Any, expected: dict[int, dict[str, Any]], when: str) -> None:
    content = path.read_bytes()
    seen = {line["step"]: line["metrics"] for line in map(json.loads, content.splitlines())}
    wanted = {step: in_json(metrics) for step, metrics in expected.items()}
    assert seen == wanted and content.count(b"\n") == len(wanted), f"{when}, the lines are {seen}; expected {wanted}"
    assert callback.length == len(content), f"{when}, length is {callback.length}; the file has {len(content)} bytes"
