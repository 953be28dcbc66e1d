"""Attacks on the trace of a run. The subject is `reference_trainer.training.trace`, or has its names."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.descriptors import held

EVENTS = ("on_train_begin", "on_epoch_begin", "on_evaluate", "on_step_end", "on_epoch_end", "on_train_end")
COUNTS, LOSSES = st.integers(0, 10**18), st.none() | st.floats()
FINITE = st.none() | st.floats(allow_nan=False, allow_infinity=False)
METRICS = st.dictionaries(st.text(min_size=1, max_size=4), st.floats(), max_size=2)
CONTEXTS = st.fixed_dictionaries(
    {
        **dict.fromkeys(("step", "epoch", "tokens"), COUNTS),
        **dict.fromkeys(("epochs", "steps_per_epoch", "total_steps"), COUNTS.map(lambda count: count + 1)),
        "loss": LOSSES,
        "best_loss": FINITE,
        "learning_rate": FINITE.map(lambda rate: rate and abs(rate)),
        "elapsed_s": st.floats(0, 1e9),
        **dict.fromkeys(("metrics", "validation_metrics"), METRICS),
    }
)
SOME: dict[str, Any] = {
    **dict.fromkeys(("step", "epoch", "tokens", "epochs", "steps_per_epoch", "total_steps"), 1),
    **dict.fromkeys(("loss", "best_loss", "learning_rate", "elapsed_s"), 0.5),
    "metrics": {"hard_loss": 0.5},
    "validation_metrics": {"eval/hard_loss": 0.5},
}


@contextmanager
def trace_in(subject: Any, **others: Any) -> Iterator[tuple[Path, Any]]:
    """Yield a path and a trace in a temporary directory."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "trace")
        yield path, subject.TraceCallback(path, **others)


def call_hook(trace: Any, event: str = "on_step_end", **numbers: Any) -> None:
    getattr(trace, event)(reference_trainer.Context(**{**SOME, **numbers}))


def _in_json(number: float | None) -> float | str | None:
    return str(number) if number is not None and not math.isfinite(number) else number


def _no_json(name: str) -> None:
    raise AssertionError(f"a line holds {name}, which is not JSON")


@given(events=st.lists(st.tuples(st.sampled_from(EVENTS), CONTEXTS), min_size=1, max_size=5))
@example(events=[("on_step_end", {**SOME, "loss": loss}) for loss in (math.nan, math.inf, -math.inf, None)])
def falsify_every_line_is_strict_json(subject: Any, events: list[tuple[str, dict[str, Any]]]) -> None:
    """One line per event, whatever its numbers, that fits the schema and reads back as the event.

    JSON has no NaN and no infinity: a loss that is not finite is a string, "nan", "inf" or "-inf".
    """
    with trace_in(subject) as (path, trace):
        for event, numbers in events:
            call_hook(trace, event, **numbers)
        trace.close()
        lines = [json.loads(line, parse_constant=_no_json) for line in path.read_text(encoding="utf-8").splitlines()]
    validator = jsonschema.Draft202012Validator(json.loads(subject.schema()))
    for number, ((event, numbers), line) in enumerate(zip(events, lines, strict=True), 1):
        problems = [error.message for error in validator.iter_errors(line)]
        assert not problems, f"line {number} of the trace does not fit its schema: {problems}"
        metrics = {
            kind: {name: _in_json(each) for name, each in numbers[kind].items()}
            for kind in ("metrics", "validation_metrics")
        }
        expected = {"event": event, **numbers, "loss": _in_json(numbers["loss"]), **metrics}
        assert line == expected, f"line {number} is {line}; expected {expected}"


def _lost(path: Path) -> None:
    """Close the open descriptors of the path, as if its file system was lost."""
    for descriptor in held(path):
        os.close(descriptor)


def _refusal(call: Any) -> str:
    """Return the message of the `OutputError` of `call`; empty if none is raised."""
    try:
        call()
    except reference_trainer.OutputError as error:
        return str(error)
    return ""


@given(before=st.integers(0, 3), then=st.sampled_from(["an event", "the end"]))
def falsify_lost_trace_line_ends_run(subject: Any, before: int, then: str) -> None:
    """An `OutputError` that names the file, raised once, if a line or the end of the file cannot be written.

    Earlier lines are kept.
    """
    with trace_in(subject) as (path, trace):
        for _ in range(before):
            call_hook(trace)
        _lost(path)
        said = [_refusal(lambda: call_hook(trace))] if then == "an event" else []
        said.append(_refusal(trace.close))
        named = [str(path) in each for each in said]
        assert named == ([True, False] if then == "an event" else [True]), (
            f"lost after {before} lines, detected at {then}: the errors are {said}; expected one that names the file"
        )
        lines = len(path.read_text().splitlines()) if path.exists() else 0
    assert lines == before, f"lost after {before} lines, the trace holds {lines}"


THERE = {
    "nothing": (None, True, True),
    "nothing in a missing directory": (None, False, False),
    "an empty file": (b"", False, True),
    "a trace": (b'{"event": "on_train_begin", "step": 0}\n', False, True),
    "a trace that was cut off": (b'{"event": "on_train_', False, True),
    "less than a trace begins with": (b'{"event": "on_tr', False, False),
    "other JSON": (b'{"event": "on_step_end"}\n', False, False),
    "settings": (b"seed = 1\n", False, False),
}


@given(there=st.sampled_from(list(THERE)), force=st.booleans(), said=st.booleans())
def falsify_force_overwrites_only_traces(subject: Any, there: str, force: bool, said: bool) -> None:
    """Without force, the default, an existing file is refused; with it, a trace or an empty file is accepted.

    Without an event the file is unchanged.
    """
    content, *taken = THERE[there]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "missing" if "missing" in there else ".", "trace")
        if content is not None:
            path.write_bytes(content)
        arguments = {"force": force} if force or said else {}
        words = _refusal(lambda: subject.TraceCallback(path, **arguments).close())
        left = path.read_bytes() if path.exists() else None
    case = f"a trace over {there}, with {arguments or 'the default of force'},"
    accepted = words == ""
    assert accepted == taken[force], f"{case} is {'accepted' if accepted else f'refused with {words!r}'}"
    assert left == content, f"{case} got no event, and {content!r} became {left!r}"


OLDER = json.dumps({"event": "on_train_begin", **SOME}).encode() + b"\n"


@given(lines=st.integers(0, 4), events=st.integers(0, 4), end=st.sampled_from([b"", OLDER[:30]]))
def falsify_older_trace_is_kept_until_first_event(subject: Any, lines: int, events: int, end: bytes) -> None:
    older = OLDER * lines + end
    case = f"over {len(older)} bytes of an older trace"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "trace")
        path.write_bytes(older)
        trace = subject.TraceCallback(path, force=True)
        assert path.read_bytes() == older, f"{case}, one that has no event yet left {path.read_bytes()!r}"
        for count in range(1, events + 1):
            call_hook(trace, step=count)
            seen = [_step(line) for line in path.read_bytes().splitlines()]
            assert seen == list(range(1, count + 1)), f"{case}, a trace of {count} events holds those of steps {seen}"
        before = path.read_bytes()
        trace.close()
        left = path.read_bytes() if path.exists() else None
    assert left == before, f"{case}, a trace of {events} events held {before!r} and, closed, {left!r}"


def _step(line: bytes) -> int | str:
    """Return the step of an event; any other line as text."""
    try:
        event = json.loads(line)
    except ValueError:
        return repr(line)
    return int(event["step"]) if event["event"] == "on_step_end" else repr(line)
