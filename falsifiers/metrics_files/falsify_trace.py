"""Attacks on the trace of a run. The subject is `reference_trainer.callbacks.trace`, or has its names."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.metrics_files.lines import assert_fits, directory, in_json, refusal, strict_lines

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


def call_hook(trace: Any, event: str = "on_step_end", **numbers: Any) -> None:
    getattr(trace, event)(reference_trainer.Context(**{**SOME, **numbers}))


@given(events=st.lists(st.tuples(st.sampled_from(EVENTS), CONTEXTS), min_size=1, max_size=5))
@example(events=[("on_step_end", {**SOME, "loss": loss}) for loss in (math.nan, math.inf, -math.inf, None)])
def falsify_every_line_is_strict_json(subject: Any, events: list[tuple[str, dict[str, Any]]]) -> None:
    with directory() as place:
        path, trace = place / "trace", subject.TraceCallback(place / "trace")
        for event, numbers in events:
            call_hook(trace, event, **numbers)
        trace.close()
        lines = strict_lines(path)
    assert_fits(subject.schema(), lines)
    for number, ((event, numbers), line) in enumerate(zip(events, lines, strict=True), 1):
        expected = {"event": event, **in_json(numbers)}
        assert line == expected, f"line {number} is {line}; expected {expected}"


THERE = {
    "nothing": (None, True, True),
    "an empty file": (b"", False, True),
    "a trace": (b'{"event": "on_train_begin", "step": 0}\n', False, True),
    "a trace that was cut": (b'{"event": "on_train_begin", "step": 0}\n' * 5 + b'{"event": "on_tr', False, True),
    "other JSON": (b'{"event": "on_step_end"}\n', False, False),
    "settings": (b"seed = 1\n", False, False),
}


@given(there=st.sampled_from(list(THERE)), force=st.booleans(), events=st.integers(0, 3))
def falsify_force_overwrites_only_traces(subject: Any, there: str, force: bool, events: int) -> None:
    """Without an event the file is unchanged."""
    content, *taken = THERE[there]
    with directory() as place:
        path, traces = place / "trace", list[Any]()
        if content is not None:
            path.write_bytes(content)
        said = refusal(lambda: traces.append(subject.TraceCallback(path, force=force)), reference_trainer.OutputError)
        left = path.read_bytes() if path.exists() else b""
        assert left == (content or b""), f"before its first event, {content!r} became {left!r}"
        for trace in traces:
            for step in range(1, events + 1):
                call_hook(trace, step=step)
            trace.close()
        seen = path.read_bytes() if path.exists() else None
    case = f"a trace over {there}, with force {force},"
    assert (said == "") is taken[force], f"{case} is {f'refused with {said!r}' if said else 'accepted'}"
    if said or not events:
        assert seen == content, f"{case} got no event, and {content!r} became {seen!r}"
        return
    steps = [json.loads(line)["step"] for line in (seen or b"").splitlines()]
    assert steps == list(range(1, events + 1)), f"{case} of {events} events holds those of {steps}"
