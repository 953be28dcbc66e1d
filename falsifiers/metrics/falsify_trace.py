"""Attacks on the trace and on logs of events."""

import json
import math
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.callbacks.lifecycle import HOOKS, Script, lifecycle
from falsifiers.callbacks.real_run import parts, run
from falsifiers.metrics.lines import assert_fits, in_json, refusal, strict_lines
from falsifiers.observers.events import context
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
from reference_trainer import Callbacks, TrainerError
from reference_trainer.training import loop
from reference_trainer.training.state import RunIdentity

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
    with scratch() as place:
        path, trace = place / "trace", subject.TraceCallback(place / "trace")
        for number, (event, numbers) in enumerate(events, 1):
            call_hook(trace, event, **numbers)
            written = path.read_bytes().count(b"\n")
            assert written == number, f"after {number} events the file has {written} lines"
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
    with scratch() as place:
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


NUMBERS = st.floats(allow_nan=True) | st.none()
DEFAULT = ("on_train_begin", "on_log", "on_evaluate", "on_save", "on_epoch_end", "on_train_end")


@given(
    attempts=st.integers(1, 2),
    every=st.tuples(*[st.integers(0, 2)] * 3),
    hooks=st.none() | st.lists(st.sampled_from(HOOKS), unique=True),
)
def falsify_every_event_has_its_line(
    subject: Any, attempts: int, every: tuple[int, int, int], hooks: list[str] | None
) -> None:
    script = Script(2, 2, None, ((),), accumulation=2, left=1, every=every)
    with scratch() as place:
        path = place / "events.jsonl"
        for attempt in range(1, attempts + 1):
            log = subject.EventLog(str(path), **({} if hooks is None else {"hooks": hooks}))
            run(loop, script, [log], parts() | {"identity": RunIdentity(run="mine", attempt=attempt)})
        seen = [(each["attempt"], each["hook"], each["step"], each["micro_batch"]) for each in strict_lines(path)]
        names = {each["run"] for each in strict_lines(path)}
    chosen = DEFAULT if hooks is None else hooks
    calls = [call for call in lifecycle(script).calls if call.event in chosen]
    expected = [(n, call.event, call.step, call.micro_batch) for n in range(1, attempts + 1) for call in calls]
    assert seen == expected, f"{attempts} attempts with the events {hooks}: the file has {seen}; expected {expected}"
    assert names <= {"mine"}, f"the lines name the runs {names}"


FIELDS = ("loss", "learning_rate", "gradient_norm", "elapsed_s")


@given(
    numbers=st.tuples(*[NUMBERS] * 3, st.floats(0, 1e9)),
    metrics=st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
    rank=st.integers(0, 2),
)
@example(numbers=(math.nan, math.inf, -math.inf, 1.0), metrics={"loss": math.nan}, rank=0)
def falsify_lines_are_strict_json(subject: Any, numbers: tuple[Any, ...], metrics: Any, rank: int) -> None:
    values = dict(zip(FIELDS, numbers, strict=True))
    maps = {"metrics": metrics, "validation_metrics": {**metrics, "more": 1.0}, "batch_metrics": metrics}
    with scratch() as place:
        path = place / "events.jsonl"
        callbacks = Callbacks([subject.EventLog(path)])
        callbacks.fire("on_log", context(3, rank=rank, world_size=3, checkpoint_path="a/b", **values, **maps))
        callbacks.close()
        seen = strict_lines(path) if path.exists() else []
    assert len(seen) == (rank == 0), f"rank {rank} writes {seen}"
    for line in seen:
        expected = in_json({**values, **maps})
        expected |= {"step": 3, "rank": 0, "checkpoint_path": "a/b"}
        got = {name: line.get(name) for name in expected}
        assert got == expected, f"the line is {got}; expected {expected}"


@given(ranks=st.integers(1, 3), steps=st.integers(1, 3), memory=st.none() | st.integers(0, 2**50), rate=NUMBERS)
def falsify_resources_are_logged(subject: Any, ranks: int, steps: int, memory: int | None, rate: float | None) -> None:
    with scratch() as place:
        for rank in range(ranks):
            callbacks = Callbacks([subject.ResourceLog(place / "resources.jsonl")])
            for step in range(1, steps + 1):
                at = {"rank": rank, "world_size": ranks, "memory": memory, "learning_rate": rate, "elapsed_s": 2.0}
                callbacks.fire("on_log", context(step, **at, tokens=6 * step))
            callbacks.close()
        files = sorted(each.name for each in place.iterdir())
        expected = [f"resources.rank{rank}.jsonl" for rank in range(ranks)] if ranks > 1 else ["resources.jsonl"]
        assert files == expected, f"{ranks} ranks write {files}"
        for rank, file in enumerate(files):
            seen = strict_lines(place / file)
            times = [each.pop("cpu_s") for each in seen]
            common = {"run": "", "attempt": 1, "rank": rank, "learning_rate": in_json(rate), "memory": memory}
            wanted = [
                {**common, "step": step, "elapsed_s": 2.0, "steps_per_s": step / 2, "tokens_per_s": 3.0 * step}
                for step in range(1, steps + 1)
            ]
            assert seen == wanted, f"rank {rank} of {ranks}: the lines are {seen}; expected {wanted}"
            assert times == sorted(times) and times[0] > 0, f"the processor times are {times}"


def falsify_unusable_logs_are_refused(subject: Any) -> None:
    with scratch() as place:
        for path, hooks, named in ((place / "file", {"hooks": ["on_logs"]}, "on_logs"), (place, {}, str(place))):
            assert_refused(f"{path} with {hooks}", partial(subject.EventLog, path, **hooks), named, kind=TrainerError)
