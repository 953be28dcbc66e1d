"""Attacks on the lines of metrics files, and on files of runs that are killed, resumed or lost."""

import json
import math
import os
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.metrics.lines import (
    METRICS,
    SOME,
    STEPS,
    assert_fits,
    begin,
    context,
    in_json,
    refusal,
    steps_in,
    strict_lines,
    write,
)
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import held, scratch
from reference_trainer import DataError, OutputError

Fields = dict[str, Any]
ODD = {**SOME, "elapsed_s": math.inf, "metrics": {"loss": math.nan, "kl": -math.inf, "perplexity": math.inf}}


@given(steps=st.lists(STEPS, max_size=4), cut=st.integers(0, 400))
@example(steps=[ODD, {**SOME, "learning_rate": None}, {**SOME, "metrics": {"agreement": 1.0}}], cut=0)
def falsify_each_logged_step_is_a_strict_line(subject: Any, steps: list[Fields], cut: int) -> None:
    """cut: bytes that a killed run has lost."""
    with scratch() as place:
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
        with scratch() as place:
            path = place / "metrics"
            path.write_bytes(b"\n".join([*good, text, *[GOOD.replace(b"3", b"8")] * after, b""]))
            words = f"{path}:{before + 1}: ", why
            assert_refused(kind, partial(subject.read_metrics, path), *words, kind=DataError)
            for odd in (place, place / "missing"):
                assert_refused(f"{odd}", partial(subject.read_metrics, odd), str(odd), kind=DataError)


EVALUATED = st.lists(st.tuples(METRICS | st.just({}), st.none() | METRICS | st.just({})), min_size=1, max_size=5)
"""Metrics of each step, and those on held-back text; None for a step that is not evaluated."""


@given(steps=EVALUATED)
@example(steps=[({"loss": 1.0}, None), ({}, {"eval/loss": 2.0}), ({"loss": 3.0}, {"eval/loss": 4.0}), ({}, {})])
def falsify_evaluated_step_has_one_line(subject: Any, steps: list[Any]) -> None:
    with scratch() as place:
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


@given(checkpoint=st.integers(0, 4), more=st.integers(0, 3), again=st.integers(0, 4), cut=st.integers(0, 30))
@example(checkpoint=3, more=2, again=3, cut=10)
@example(checkpoint=1, more=3, again=1, cut=0)
def falsify_resumed_run_has_each_step_once(subject: Any, checkpoint: int, more: int, again: int, cut: int) -> None:
    """checkpoint: the step at which `length` was recorded. more: steps between it and the kill. again: steps of the
    resumed run. cut: bytes of the last line that were lost.
    """
    with scratch() as place:
        path, first = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(first, range(1, checkpoint + 1))
        length = first.length
        for step in range(checkpoint + 1, checkpoint + more + 1):
            first.on_log(context(step))
        first.close()
        before = path.read_bytes()[: -cut if cut and more else None] if path.exists() else b""
        path.write_bytes(before)
        second = subject.MetricsCallback(path, truncate_to=length)
        kept = path.read_bytes()
        assert kept == before, f"before its run has begun, the resumed file holds {kept!r}; expected {before!r}"
        assert second.length == length, f"length is {second.length} before the resumed run; expected {length}"
        write(second, range(checkpoint + 1, checkpoint + again + 1))
        seen, size = steps_in(subject, path), path.stat().st_size
        assert second.length == size, f"length is {second.length} after the resumed run; the file has {size} bytes"
        second.close()
    assert seen == list(range(1, checkpoint + again + 1)), f"killed at {checkpoint + more}: steps {seen}"


@given(lines=st.integers(0, 3), wrong=st.sampled_from([-3, -1, 1, 50]))
def falsify_length_of_another_file_is_refused(subject: Any, lines: int, wrong: int) -> None:
    with scratch() as place:
        path, callback = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(callback, range(1, lines + 1))
        callback.close()
        path.touch()
        length, before = max(callback.length + wrong, 1), path.read_bytes()
        cases = {"another length": (path, length), "no length": (path, None), "a missing file": (place / "new", length)}
        cases |= {"a directory": (place, None), "a missing directory": (place / "none" / "metrics", None)}
        for kind, (where, at) in cases.items():
            call = partial(subject.MetricsCallback, where, truncate_to=at)
            assert_refused(f"{kind}, resumed at {at}", call, str(where), kind=OutputError)
        left, open_, made = path.read_bytes(), len(held(path)), (place / "new").exists()
    assert (left, open_, made) == (before, 0, False), f"refused files: {left!r}, open {open_} times, made: {made}"


@given(before=st.integers(0, 3), then=st.sampled_from(["the beginning", "a step", "the end"]))
def falsify_lost_line_ends_run(subject: Any, before: int, then: str) -> None:
    with scratch() as place:
        path, callback = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(callback, range(1, before + 1))
        length = callback.length
        for descriptor in held(path):
            os.close(descriptor)
        calls = {"the beginning": lambda: begin(callback, before), "a step": lambda: callback.on_log(context(9))}
        said = [refusal(calls[then], OutputError)] if then in calls else []
        said.append(refusal(callback.close, OutputError))
        lines = len(steps_in(subject, path)) if path.exists() else 0
    named = [str(path) in each for each in said]
    assert named == ([True, False] if then in calls else [True]), (
        f"lost after {before} lines, detected at {then}: the errors are {said}; expected one that names the file"
    )
    assert lines == before and callback.length == length, f"{lines} lines of {before}, length {callback.length}"
