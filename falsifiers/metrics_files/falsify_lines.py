"""Attacks on the lines of a metrics file and on their reader.

The subject is `reference_trainer.training.metrics_file`, or has its names.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.metrics_files.lines import METRICS, SOME, STEPS, context, directory, refusal, write

Fields = dict[str, Any]
ODD = {**SOME, "elapsed_s": math.inf, "metrics": {"loss": math.nan, "kl": -math.inf, "perplexity": math.inf}}


def _no_json(name: str) -> None:
    raise AssertionError(f"a line holds {name}, which is not JSON")


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


@given(steps=st.lists(STEPS, min_size=1, max_size=4))
@example(steps=[ODD, {**SOME, "learning_rate": None}, {**SOME, "metrics": {"agreement": 1}}])
def falsify_each_logged_step_is_a_strict_line(subject: Any, steps: list[Fields]) -> None:
    with directory() as place:
        callback = subject.MetricsCallback(place / "metrics")
        for number, fields in enumerate(steps, 1):
            callback.on_log(context(number, fields))
        callback.close()
        text = (place / "metrics").read_text(encoding="utf-8")
    assert text.endswith("\n"), f"the file ends in {text[-20:]!r}; expected the end of a line"
    lines = [json.loads(line, parse_constant=_no_json) for line in text.splitlines()]
    validator = jsonschema.Draft202012Validator(json.loads(subject.schema()))
    for number, (fields, line) in enumerate(zip(steps, lines, strict=True), 1):
        problems = [error.message for error in validator.iter_errors(line)]
        assert not problems, f"line {number} does not fit its schema: {problems}"
        expected = {"step": number, **fields, "metrics": {k: _plain(v) for k, v in fields["metrics"].items()}}
        expected |= {name: _plain(fields[name]) for name in ("learning_rate", "elapsed_s")}
        assert line == expected, f"line {number} is {line}; expected {expected}"


@given(metrics=st.lists(METRICS | st.just({}), max_size=6))
@example(metrics=[{}, {"loss": 1.0}, {}])
def falsify_steps_without_metrics_are_left_out(subject: Any, metrics: list[dict[str, float]]) -> None:
    with directory() as place:
        callback, expected = subject.MetricsCallback(place / "metrics"), []
        for step, each in enumerate(metrics, 1):
            callback.on_log(context(step, {**SOME, "metrics": each}))
            expected += [step] if each else []
            seen = [json.loads(line)["step"] for line in (place / "metrics").read_bytes().splitlines()]
            assert seen == expected, f"after step {step} with metrics {each} the file has the steps {seen}"
            size = (place / "metrics").stat().st_size
            assert callback.length == size, f"length is {callback.length} after step {step}; the file has {size} bytes"
        callback.on_epoch_end(context(9, SOME))
        callback.on_train_end(context(9, SOME))
        assert (place / "metrics").stat().st_size == callback.length, "an epoch's end wrote a line"
        callback.close()


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
    "an empty line": (b"", "Expecting value"),
    "half a line": (GOOD[:40], ""),
    "not UTF-8": (b'"\xff"', "utf-8"),
    "a list": (b"[3]", "line"),
    "a bare NaN": (GOOD.replace(b"1.5", b"NaN"), "NaN is not JSON"),
    "a bare infinity": (GOOD.replace(b"1.5", b"-Infinity"), "-Infinity is not JSON"),
    "a number as text": (GOOD.replace(b"1.5", b'"1.5"'), "metrics.loss"),
    "no metrics": (GOOD.replace(b', "metrics": {"loss": 1.5}', b""), "metrics"),
    "an unknown key": (GOOD.replace(b'"tokens"', b'"more": 1, "tokens"'), "more"),
    "a negative count": (GOOD.replace(b"7", b"-7"), "tokens"),
    "step 0": (GOOD.replace(b"3", b"0"), "step"),
    "a fraction of a step": (GOOD.replace(b"3", b"3.5"), "step"),
    "epoch 0": (GOOD.replace(b'"epoch": 1', b'"epoch": 0'), "epoch"),
    "the step before again": (GOOD.replace(b"3", b"2"), "step 2 follows step 2"),
    "an earlier step": (GOOD.replace(b"3", b"1"), "step 1 follows step 2"),
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


@given(kind=st.sampled_from(["missing", "a directory"]))
def falsify_unreadable_files_are_named(subject: Any, kind: str) -> None:
    with directory() as place:
        path = place if kind == "a directory" else place / "missing"
        said = refusal(lambda: subject.read_metrics(path), reference_trainer.DataError)
    assert str(path) in said, f"{kind}: the error is {said!r}; expected one that names {path}"


def falsify_an_empty_file_has_no_lines(subject: Any) -> None:
    with directory() as place:
        (place / "metrics").touch()
        seen = subject.read_metrics(place / "metrics")
        write(subject.MetricsCallback(Path(place, "other")), [])
        other = subject.read_metrics(place / "other")
    assert seen == other == [], f"empty files are read as {seen} and {other}; expected no lines"
