"""Attacks on the metrics of a run: means and perplexities, the metrics file, the event and resource logs, the trace.

JSON has no NaN and no infinities. Strict lines write them as strings, such as "NaN" for NaN.
"""

import json
import math
import os
import time
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS, Script, lifecycle
from falsifiers.callbacks.real_run import parts, run
from falsifiers.observers.events import context
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import held, scratch
from reference_trainer import Callbacks, DataError, OutputError, TrainerError
from reference_trainer.distillation.step import MetricSum
from reference_trainer.training import loop
from reference_trainer.training.state import RunIdentity

NUMBERS = st.floats()
METRICS = st.dictionaries(st.text(max_size=8), NUMBERS, min_size=1, max_size=4)
STEPS = st.fixed_dictionaries(
    {"epoch": st.integers(1, 10**9), "learning_rate": st.none() | NUMBERS, "elapsed_s": NUMBERS}
    | {"tokens": st.integers(0, 10**18), "metrics": METRICS}
)
"""Fields of a logged step, but for its number."""
LOGGED: dict[str, Any] = {"epoch": 1, "learning_rate": 0.5, "elapsed_s": 0.25, "tokens": 7, "metrics": {"loss": 1.5}}


def begin(callback: Any, step: int = 0) -> None:
    callback.on_train_begin(context(step, **{**LOGGED, "metrics": {}}))


def write(callback: Any, steps: Any) -> None:
    """Begin a run, and log these steps."""
    begin(callback)
    for step in steps:
        callback.on_log(context(step, **LOGGED))


def steps_in(subject: Any, path: Path) -> list[int]:
    return [line.step for line in subject.read_metrics(path)]


def strict_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; assert that they are strict JSON and that the last one is complete."""
    text = path.read_text(encoding="utf-8")
    assert not text or text.endswith("\n"), f"the file is {text!r}; expected a line break at its end"
    try:
        return [json.loads(line, parse_constant=_refuse_constant) for line in text.splitlines()]
    except json.JSONDecodeError as error:
        raise AssertionError(f"the line {error.doc!r} is not JSON: {error}") from error


def _refuse_constant(constant: str) -> None:
    raise AssertionError(f"a line contains {constant}; expected strict JSON")


def in_json(value: Any) -> Any:
    """Return a number, or numbers by name, as strict lines have them: one that is not finite is a string."""
    if isinstance(value, dict):
        return {name: in_json(number) for name, number in value.items()}
    return value if value is None or math.isfinite(value) else str(value)


def assert_fits(schema: str, lines: list[dict[str, Any]]) -> None:
    """Assert that every line fits the schema, a JSON text."""
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    for number, line in enumerate(lines, 1):
        problems = [error.message for error in validator.iter_errors(line)]
        assert not problems, f"line {number} does not fit its schema: {problems}"


Fields = dict[str, Any]
NOT_FINITE = {**LOGGED, "elapsed_s": math.inf, "metrics": {"loss": math.nan, "kl": -math.inf, "perplexity": math.inf}}


@given(steps=st.lists(STEPS, max_size=4), cut=st.integers(0, 400))
@example(steps=[NOT_FINITE, {**LOGGED, "learning_rate": None}, {**LOGGED, "metrics": {"agreement": 1.0}}], cut=0)
def falsify_each_logged_step_is_a_strict_line(subject: Any, steps: list[Fields], cut: int) -> None:
    """Log steps, remove the last `cut` bytes of the file, as if the run was killed, and read it."""
    with scratch() as place:
        path, callback, ends = place / "metrics", subject.MetricsCallback(place / "metrics"), [0]
        for number, fields in enumerate(steps, 1):
            callback.on_log(context(7 * number, **fields))
            ends.append(callback.length)
        lines, length = strict_lines(path), max(callback.length - cut, 0)
        path.write_bytes(path.read_bytes()[:length])
        read = subject.read_metrics(path)
    assert_fits(subject.schema(), lines)
    for number, (fields, line) in enumerate(zip(steps, lines, strict=True), 1):
        expected = {"step": 7 * number, **in_json(fields)}
        assert line == expected, f"line {number} is {line}; expected {expected}"
    complete = sum(0 < end <= length for end in ends)
    assert_equal(f"lines read from {length} of {ends[-1]} bytes", len(read), complete)
    for number, (entry, fields) in enumerate(zip(read, steps, strict=False), 1):
        actual = {name: getattr(entry, name) for name in ("step", *LOGGED)}
        expected = {"step": 7 * number, **{name: fields[name] for name in LOGGED}}
        # repr, since NaN is unequal to itself.
        assert repr(actual) == repr(expected), f"line {number} is read as {actual}; expected {expected}"


VALID_LINE = b'{"step": 3, "epoch": 1, "learning_rate": 0.5, "elapsed_s": 0.25, "tokens": 7, "metrics": {"loss": 1.5}}'
MALFORMED = {
    "no JSON": (b"step 3", "Expecting value"),
    "not UTF-8": (b'"\xff"', "utf-8"),
    "a bare NaN": (VALID_LINE.replace(b"1.5", b"NaN"), "NaN is not JSON"),
    "a number as text": (VALID_LINE.replace(b"1.5", b'"1.5"'), "metrics.loss"),
    "an unknown key": (VALID_LINE.replace(b'"tokens"', b'"more": 1, "tokens"'), "more"),
    "a negative count": (VALID_LINE.replace(b"7", b"-7"), "tokens"),
    "the step before again": (VALID_LINE.replace(b"3", b"2"), "step 2 follows step 2"),
}


@given(before=st.integers(1, 2), after=st.booleans())
def falsify_malformed_lines_are_named(subject: Any, before: int, after: bool) -> None:
    """Read files with `before` valid lines before a malformed one, and one after it or none."""
    valid = [VALID_LINE.replace(b"3", b"%d" % step) for step in range(3 - before, 3)]
    for kind, (text, why) in MALFORMED.items():
        with scratch() as place:
            path = place / "metrics"
            path.write_bytes(b"\n".join([*valid, text, *[VALID_LINE.replace(b"3", b"8")] * after, b""]))
            words = f"{path}:{before + 1}: ", why
            assert_refused(kind, partial(subject.read_metrics, path), *words, kind=DataError)
            for unreadable in (place, place / "missing"):
                assert_refused(
                    f"{unreadable}", partial(subject.read_metrics, unreadable), str(unreadable), kind=DataError
                )


EVALUATED = st.lists(st.tuples(METRICS | st.just({}), st.none() | METRICS | st.just({})), min_size=1, max_size=5)
"""Metrics and evaluation metrics of each step; the latter are None for a step that is not evaluated."""


@given(steps=EVALUATED)
@example(steps=[({"loss": 1.0}, None), ({}, {"eval/loss": 2.0}), ({"loss": 3.0}, {"eval/loss": 4.0}), ({}, {})])
def falsify_evaluated_step_has_one_line(subject: Any, steps: list[Any]) -> None:
    with scratch() as place:
        path, expected = place / "metrics", dict[int, dict[str, Any]]()
        callback = subject.MetricsCallback(path)
        begin(callback)
        for step, (metrics, held_back) in enumerate(steps, 1):
            fields = {**LOGGED, "metrics": metrics}
            if metrics:
                callback.on_log(context(step, **fields))
                expected[step] = metrics
                _assert_lines(callback, path, expected, f"after step {step} was logged")
            if held_back is not None:
                callback.on_evaluate(context(step, **fields, validation_metrics=held_back))
                if held_back:
                    expected[step] = {**metrics, **held_back}
            _assert_lines(callback, path, expected, f"after step {step} with {metrics} and {held_back}")
        callback.close()
        read = steps_in(subject, path) if path.exists() else []
        assert_equal("steps that the reader returns", read, list(expected))


def _assert_lines(callback: Any, path: Any, expected: dict[int, dict[str, Any]], when: str) -> None:
    """Assert that the file has a line for each step, and that `length` is its size."""
    content = path.read_bytes()
    lines = [(line["step"], line["metrics"]) for line in map(json.loads, content.splitlines())]
    assert_equal(f"{when}: the lines", lines, [(step, in_json(metrics)) for step, metrics in expected.items()])
    sizes = callback.length, content.count(b"\n")
    assert_equal(f"{when}: length, and complete lines", sizes, (len(content), len(expected)))


@given(checkpoint=st.integers(0, 4), more=st.integers(0, 3), again=st.integers(0, 4), cut=st.integers(0, 30))
@example(checkpoint=3, more=2, again=3, cut=10)
@example(checkpoint=1, more=3, again=1, cut=0)
def falsify_resumed_run_has_each_step_once(subject: Any, checkpoint: int, more: int, again: int, cut: int) -> None:
    """Log steps, lose the end of the file, and resume from a checkpoint, which cuts the file at the first new line.

    Args:
        subject: `callbacks.metrics_file`.
        checkpoint: The step at which `length` was recorded.
        more: The number of steps between the checkpoint and the kill.
        again: The number of steps of the resumed run.
        cut: The number of lost bytes, at most a part of the last line.
    """
    with scratch() as place:
        path, first = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(first, range(1, checkpoint + 1))
        length = first.length
        for step in range(checkpoint + 1, checkpoint + more + 1):
            first.on_log(context(step, **LOGGED))
        first.close()
        before = path.read_bytes()[: -cut if cut and more else None] if path.exists() else b""
        path.write_bytes(before)
        second = subject.MetricsCallback(path, truncate_to=length)
        content = path.read_bytes()
        assert_equal("the file before the resumed run begins", content, before)
        assert_equal("length before the resumed run begins", second.length, length)
        write(second, range(checkpoint + 1, checkpoint + again + 1))
        steps = steps_in(subject, path)
        assert_equal("length after the resumed run", second.length, path.stat().st_size)
        second.close()
    assert_equal(f"steps of a run killed at {checkpoint + more}", steps, list(range(1, checkpoint + again + 1)))


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
        actual = path.read_bytes(), held(path), (place / "new").exists()
    assert_equal("content, open descriptors, and a new file, after the refusals", actual, (before, [], False))


@given(before=st.integers(0, 3), then=st.sampled_from(["the beginning", "a step", "the end"]))
def falsify_lost_line_ends_run(subject: Any, before: int, then: str) -> None:
    """Close the descriptor of the file after `before` lines, and call one hook and `close`, or `close` only."""
    with scratch() as place:
        path, callback = place / "metrics", subject.MetricsCallback(place / "metrics")
        write(callback, range(1, before + 1))
        length = callback.length
        for descriptor in held(path):
            os.close(descriptor)
        calls = {
            "the beginning": lambda: begin(callback, before),
            "a step": lambda: callback.on_log(context(9, **LOGGED)),
        }
        messages = [refusal(calls[then], OutputError)] if then in calls else []
        messages.append(refusal(callback.close, OutputError))
        lines = len(steps_in(subject, path)) if path.exists() else 0
    # The error is raised once: `close` does not repeat it.
    has_path = [str(path) in message for message in messages]
    assert has_path == ([True, False] if then in calls else [True]), (
        f"lost after {before} lines, detected at {then}: the errors are {messages}; expected one that names the file"
    )
    assert_equal("lines and length", (lines, callback.length), (before, length))


PAIRS = st.lists(st.tuples(st.floats(-1e15, 1e15), st.integers(0, 10**6)), max_size=8)


@given(pairs=PAIRS.filter(lambda pairs: any(count for _, count in pairs)), data=st.data())
@example(pairs=[(1e15, 1), (1e-9, 1), (-1e15, 1)], data=None)
def falsify_order_has_no_influence(subject: Any, pairs: list[tuple[float, int]], data: Any) -> None:
    order = pairs if data is None else data.draw(st.permutations(pairs))
    expected = float(sum(Fraction(sum_) for sum_, _ in pairs)) / sum(count for _, count in pairs)
    assert_equal(f"mean of {order}, the exact sum over the count", subject.weighted_mean(iter(order)), expected)


NAMES = ("loss", "soft_loss", "hard_loss", "kl_at_T", "kl_at_1", "teacher_loss", "teacher_entropy", "agreement")
SUMS = st.integers(-(2**40), 2**40).map(lambda number: number / 1024)


@given(sums=st.dictionaries(st.sampled_from(NAMES), st.tuples(SUMS, st.integers(0, 2**20)), max_size=len(NAMES)))
@example(sums={name: (float(8 * place), 4) for place, name in enumerate(NAMES, 1)})
@example(sums={"hard_loss": (0.0, 0), "teacher_loss": (0.0, 0), "loss": (0.0, 8)})
@example(sums={"hard_loss": (math.inf, 1), "teacher_loss": (math.nan, 3), "kl_at_1": (7000.0, 7)})
def falsify_derived_metrics(subject: Any, sums: dict[str, tuple[float, int]]) -> None:
    actual = subject.derive_metrics({name: MetricSum(*pair) for name, pair in sums.items()})
    expected = {name: sum_ / count for name, (sum_, count) in sums.items() if count}
    for name, source in (("student_perplexity", "hard_loss"), ("teacher_perplexity", "teacher_loss")):
        if source in expected:
            expected[name] = math.exp(min(expected[source], 20.0))
    assert repr(actual) == repr(expected), f"the metrics of sums and counts {sums} are {actual}; expected {expected}"


EVENTS = ("on_train_begin", "on_epoch_begin", "on_evaluate", "on_step_end", "on_epoch_end", "on_train_end")
COUNTS, FINITE = st.integers(0, 10**18), st.none() | st.floats(allow_nan=False, allow_infinity=False)
NAMED_NUMBERS = st.dictionaries(st.text(min_size=1, max_size=4), st.floats(), max_size=2)
CONTEXTS = st.fixed_dictionaries(
    {
        **dict.fromkeys(("step", "epoch", "tokens"), COUNTS),
        **dict.fromkeys(("epochs", "steps_per_epoch", "total_steps"), COUNTS.map(lambda count: count + 1)),
        "loss": st.none() | NUMBERS,
        "best_loss": FINITE,
        "learning_rate": FINITE.map(lambda rate: rate and abs(rate)),
        "elapsed_s": st.floats(0, 1e9),
        **dict.fromkeys(("metrics", "validation_metrics"), NAMED_NUMBERS),
    }
)
TRACED: dict[str, Any] = {
    **dict.fromkeys(("step", "epoch", "tokens", "epochs", "steps_per_epoch", "total_steps"), 1),
    **dict.fromkeys(("loss", "best_loss", "learning_rate", "elapsed_s"), 0.5),
    "metrics": {"hard_loss": 0.5},
    "validation_metrics": {"eval/hard_loss": 0.5},
}


def call_hook(trace: Any, event: str = "on_step_end", **numbers: Any) -> None:
    getattr(trace, event)(context(**{**TRACED, **numbers}))


@given(events=st.lists(st.tuples(st.sampled_from(EVENTS), CONTEXTS), min_size=1, max_size=5))
@example(events=[("on_step_end", {**TRACED, "loss": loss}) for loss in (math.nan, math.inf, -math.inf, None)])
def falsify_every_line_is_strict_json(subject: Any, events: list[tuple[str, dict[str, Any]]]) -> None:
    with scratch() as place:
        path, trace = place / "trace", subject.TraceCallback(place / "trace")
        for number, (event, numbers) in enumerate(events, 1):
            call_hook(trace, event, **numbers)
            assert_equal("lines of the file after each event", path.read_bytes().count(b"\n"), number)
        trace.close()
        lines = strict_lines(path)
    assert_fits(subject.schema(), lines)
    for number, ((event, numbers), line) in enumerate(zip(events, lines, strict=True), 1):
        expected = {"event": event, **in_json(numbers)}
        assert line == expected, f"line {number} is {line}; expected {expected}"


EXISTING = {
    "nothing": (None, True, True),
    "an empty file": (b"", False, True),
    "a trace": (b'{"event": "on_train_begin", "step": 0}\n', False, True),
    "a trace that was cut": (b'{"event": "on_train_begin", "step": 0}\n' * 5 + b'{"event": "on_tr', False, True),
    "other JSON": (b'{"event": "on_step_end"}\n', False, False),
    "settings": (b"seed = 1\n", False, False),
}


@given(existing=st.sampled_from(list(EXISTING)), force=st.booleans(), events=st.integers(0, 3))
def falsify_force_overwrites_only_traces(subject: Any, existing: str, force: bool, events: int) -> None:
    """Create a trace over an existing file; without an event the file stays unchanged."""
    content, *is_accepted = EXISTING[existing]
    with scratch() as place:
        path, traces = place / "trace", list[Any]()
        if content is not None:
            path.write_bytes(content)
        message = refusal(lambda: traces.append(subject.TraceCallback(path, force=force)), OutputError)
        assert_equal("the file before the first event", path.read_bytes() if path.exists() else b"", content or b"")
        for trace in traces:
            for step in range(1, events + 1):
                call_hook(trace, step=step)
            trace.close()
        after = path.read_bytes() if path.exists() else None
    case = f"a trace over {existing}, with {force=}"
    assert (message == "") is is_accepted[force], f"{case}: refused with {message!r}; expected {is_accepted[force]=}"
    if message or not events:
        assert_equal(f"{case}: the file without an event", after, content)
    else:
        steps = [json.loads(line)["step"] for line in (after or b"").splitlines()]
        assert_equal(f"{case}: steps in the file", steps, list(range(1, events + 1)))


DEFAULT = ("on_train_begin", "on_log", "on_evaluate", "on_save", "on_epoch_end", "on_train_end")


@given(
    attempts=st.integers(1, 2),
    every=st.tuples(*[st.integers(0, 2)] * 3),
    hooks=st.none() | st.lists(st.sampled_from(HOOKS), unique=True),
)
@example(attempts=2, every=(1, 1, 1), hooks=list(HOOKS))
def falsify_every_event_has_its_line(
    subject: Any, attempts: int, every: tuple[int, int, int], hooks: list[str] | None
) -> None:
    script = Script(2, 2, None, ((),), accumulation=2, left=1, every=every)
    chosen = DEFAULT if hooks is None else hooks
    calls = [call for call in lifecycle(script).calls if call.event in chosen]
    half = b'{"hook": "on_'
    with scratch() as place:
        path = place / "events.jsonl"
        for attempt in range(1, attempts + 1):
            log = subject.EventLog(str(path), **({} if hooks is None else {"hooks": hooks}))
            run(loop, script, [log], parts() | {"identity": RunIdentity(run="mine", attempt=attempt)})
            if attempt < attempts and calls:  # the disk is full in the middle of the next line
                path.write_bytes(path.read_bytes() + half)
        halves = path.read_bytes().split(b"\n").count(half)
        assert_equal("incomplete lines of earlier attempts, each a line", halves, (attempts - 1) * bool(calls))
        path.write_bytes(path.read_bytes().replace(half + b"\n", b""))
        lines = strict_lines(path)
        actual = [(line["attempt"], line["hook"], line["step"], line["micro_batch"]) for line in lines]
    expected = [(n, call.event, call.step, call.micro_batch) for n in range(1, attempts + 1) for call in calls]
    assert_equal(
        f"{attempts} attempts with {hooks=}: (attempt, hook, step, micro-batch) of the lines", actual, expected
    )
    assert_equal("runs in the lines", [line["run"] for line in lines], ["mine"] * len(lines))


FIELDS = ("loss", "learning_rate", "gradient_norm", "elapsed_s")


@given(
    numbers=st.tuples(*[NUMBERS | st.none()] * 3, st.floats(0, 1e9)),
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
        lines = strict_lines(path) if path.exists() else []
    expected = in_json({**values, **maps}) | {"step": 3, "rank": 0, "checkpoint_path": "a/b"}
    actual = [{name: line.get(name) for name in expected} for line in lines]
    assert_equal(f"lines of rank {rank}", actual, [expected] if rank == 0 else [])


@given(
    ranks=st.integers(1, 3), steps=st.integers(1, 3), memory=st.none() | st.integers(0, 2**50), rate=NUMBERS | st.none()
)
def falsify_resources_are_logged(subject: Any, ranks: int, steps: int, memory: int | None, rate: float | None) -> None:
    with scratch() as place:
        begin_s = time.process_time()
        for rank in range(ranks):
            callbacks = Callbacks([subject.ResourceLog(place / "resources.jsonl")])
            for step in range(1, steps + 1):
                at = {"rank": rank, "world_size": ranks, "memory": memory, "learning_rate": rate, "elapsed_s": 2.0}
                callbacks.fire("on_log", context(step, **at, tokens=6 * step))
            callbacks.close()
        files = sorted(file.name for file in place.iterdir())
        expected = [f"resources.rank{rank}.jsonl" for rank in range(ranks)] if ranks > 1 else ["resources.jsonl"]
        assert_equal(f"files of {ranks} ranks", files, expected)
        for rank, file in enumerate(files):
            lines = strict_lines(place / file)
            times = [line.pop("cpu_s") for line in lines]
            common = {"run": "", "attempt": 1, "rank": rank, "learning_rate": in_json(rate), "memory": memory}
            expected = [
                {**common, "step": step, "elapsed_s": 2.0, "steps_per_s": step / 2, "tokens_per_s": 3.0 * step}
                for step in range(1, steps + 1)
            ]
            assert_equal(f"rank {rank} of {ranks}: lines", lines, expected)
            # 0.02 s: the resolution of some clocks.
            measured = [begin_s - 0.02, *times, time.process_time() + 0.02]
            assert measured == sorted(measured), f"processor times in s: {times}; expected rising, {measured}"


def falsify_unusable_logs_are_refused(subject: Any) -> None:
    with scratch() as place:
        for path, hooks, word in ((place / "file", {"hooks": ["on_logs"]}, "on_logs"), (place, {}, str(place))):
            assert_refused(f"{path} with {hooks}", partial(subject.EventLog, path, **hooks), word, kind=TrainerError)
        assert_equal("files after the refusals", list(place.iterdir()), [])
