"""Attacks on lines of events and resources. The subject has `EventLog` and `ResourceLog`, as `training.event_log`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS, Script, lifecycle
from falsifiers.callbacks.real_run import parts, run
from falsifiers.metrics_files.lines import in_json, strict_lines
from falsifiers.observers.events import context
from reference_trainer import CallbackError, Callbacks, OutputError
from reference_trainer.training import loop
from reference_trainer.training.arguments import RunIdentity

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
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "events.jsonl")
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
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "events.jsonl")
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
    with tempfile.TemporaryDirectory() as name:
        for rank in range(ranks):
            callbacks = Callbacks([subject.ResourceLog(Path(name, "resources.jsonl"))])
            for step in range(1, steps + 1):
                at = {"rank": rank, "world_size": ranks, "memory": memory, "learning_rate": rate, "elapsed_s": 2.0}
                callbacks.fire("on_log", context(step, **at, tokens=6 * step))
            callbacks.close()
        files = sorted(each.name for each in Path(name).iterdir())
        expected = [f"resources.rank{rank}.jsonl" for rank in range(ranks)] if ranks > 1 else ["resources.jsonl"]
        assert files == expected, f"{ranks} ranks write {files}"
        for rank, file in enumerate(files):
            seen = strict_lines(Path(name, file))
            times = [each.pop("cpu_s") for each in seen]
            common = {"run": "", "attempt": 1, "rank": rank, "learning_rate": in_json(rate), "memory": memory}
            wanted = [
                {**common, "step": step, "elapsed_s": 2.0, "steps_per_s": step / 2, "tokens_per_s": 3.0 * step}
                for step in range(1, steps + 1)
            ]
            assert seen == wanted, f"rank {rank} of {ranks}: the lines are {seen}; expected {wanted}"
            assert times == sorted(times) and times[0] > 0, f"the processor times are {times}"


def falsify_unusable_logs_are_refused(subject: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        for path, hooks, named in ((Path(name, "file"), {"hooks": ["on_logs"]}, "on_logs"), (Path(name), {}, name)):
            try:
                subject.EventLog(path, **hooks)
            except (OutputError, CallbackError) as error:
                assert named in str(error), f"{path} with {hooks} is refused with {error}"
            else:
                raise AssertionError(f"{path} with {hooks} is accepted")
