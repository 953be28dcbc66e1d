"""What is kept of a running task, its limits, and the trial that its reply becomes."""

import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pv.engines.trial import Counterexample, Output, TrialStatus
from pv.workers.running_task import KEPT_BYTES, MAX_LINE, Reply, RunningTask, Task
from pv.workers.tree import Usage
from pv.workers.trial_from_reply import trial


@pytest.fixture
def running() -> Iterator[RunningTask]:
    with selectors.DefaultSelector() as selector:
        started = RunningTask(Task(key="k", body=None, limit_s=3.0, memory_mib=5), "t1", selector)
        yield started
        started.close()


def test_a_line_without_end_does_not_grow_without_bound(running: RunningTask) -> None:
    for _ in range(MAX_LINE // (1 << 15) + 1):
        os.write(running.evidence.write_fd, b"x" * (1 << 15))
        running.read_evidence()
    os.write(running.evidence.write_fd, b'\n{"kind": "end"}\n')
    running.close_write_ends()
    assert running.reply(Path()).records == ({"kind": "end"},)


def stopped_by(running: RunningTask, *uses: tuple[float, bool]) -> str:
    """Return the limit that stopped a task, which is measured once a second with these CPU times and activities."""
    for second, (cpu_s, active) in enumerate(uses, 1):
        running.measure(Usage(private_bytes=0, cpu_s=cpu_s, active=active), running.start + second)
    return running.stopped


@pytest.mark.parametrize(
    ("uses", "stopped"),
    [
        ([(0.01 * second, True) for second in range(100)], ""),  # it waits for a core most of the time
        ([(1.0, True), (2.0, True), (3.0, True)], ""),
        ([(1.0, True), (2.0, True), (3.1, True)], "time"),
        ([(3.1, True), (1.0, True)], "time"),  # a child has ended whose time its parent does not have yet
        ([(4.0, False)], "time"),  # of several processes, within one second
        ([(0.0, False)] * 4, "idle"),
        ([(0.5, False), *[(0.5, False), (0.5, True)] * 4], "idle"),
    ],
)
def test_limit_counts_cpu_time_and_idle_time(
    running: RunningTask, uses: list[tuple[float, bool]], stopped: str
) -> None:
    assert stopped_by(running, *uses) == stopped
    assert running.waits == (uses[-1] == (0.0, False))


def test_memory_above_its_limit_stops_a_task(running: RunningTask) -> None:
    running.measure(Usage(private_bytes=6 << 20, cpu_s=0.0, active=True), running.start)
    assert running.stopped == "memory"


def test_records_are_joined_from_parts_and_half_a_line_is_dropped(running: RunningTask, tmp_path: Path) -> None:
    for part in (b'{"kind": "e', b'nd", "n": 1}\n[2]\n{"kind": "end", "n": 2}\n{"ki'):
        os.write(running.evidence.write_fd, part)
        running.read_evidence()
    os.write(running.output.write_fd, b"a" * KEPT_BYTES)
    running.read_output()
    os.write(running.output.write_fd, b"b" * 100 + b"c" * (KEPT_BYTES - 5))
    running.read_output()
    os.write(running.output.write_fd, b"c" * 5)
    running.close_write_ends()
    reply = running.reply(tmp_path)
    assert [record["n"] for record in reply.records] == [1, 2]
    assert reply.last("end") == {"kind": "end", "n": 2} and reply.last("start") is None
    assert "aa\n... 100 bytes left out ...\ncc" in reply.output.text
    assert reply.output == Output("a" * KEPT_BYTES, "c" * KEPT_BYTES, 2 * KEPT_BYTES + 100, 100)


END = {
    "kind": "end",
    "status": "refuted",
    "valid": 3,
    "seconds": 9.0,
    "arguments": {"n": 0},
    "exact": True,
    "error": "e",
}
FIRST = {"kind": "counterexample", "status": "refuted", "arguments": {"n": 9}, "exact": True, "error": "first"}


@pytest.mark.parametrize(
    ("fields", "status", "detail", "counterexample"),
    [
        ({"records": (FIRST, END)}, "refuted", "", Counterexample(arguments={"n": 0}, exact=True, error="e")),
        ({"records": ({"kind": "end", "status": "error", "detail": "d", "error": "e"},)}, "error", "d",
            Counterexample(arguments={}, exact=False, error="e")),
        ({"records": (FIRST,), "stopped": "time"}, "timeout", "stopped at its limit of 2 s of CPU time",
            Counterexample(arguments={"n": 9}, exact=True, error="first")),
        ({"stopped": "memory"}, "out of memory", "stopped at its memory limit of 10 MiB", None),
        ({"status": None}, "crashed", "the fork server was killed while this task ran alone", None),
        ({"status": 9}, "crashed", "killed by signal 9 (SIGKILL)", None),
        ({"status": 35}, "crashed", "killed by signal 35", None),  # a real-time signal has no name
        ({"status": 3 << 8}, "no result", "the worker ended without a result (exit status 3)", None),
    ],
)  # fmt: skip
def test_trial_follows_from_the_reply(
    fields: dict[str, Any], status: str, detail: str, counterexample: Counterexample | None
) -> None:
    usual = {"records": (), "status": 0, "stopped": "", "seconds": 1.0, "cpu_s": 0.5, "peak_mib": 7}
    limits = {"output": Output(head="o"), "limit_s": 2.0, "memory_mib": 10, "current_arguments": ({"n": 5}, False)}
    result = trial(Reply(**{**usual, **limits, **fields}), falsifier="F", device="cuda", mutant="m", seed=4)
    assert (result.status, result.detail, result.counterexample) == (TrialStatus(status), detail, counterexample)
    assert (result.falsifier, result.device, result.mutant, result.seed) == ("F", "cuda", "m", 4)
    assert (result.seconds, result.cpu_s, result.peak_mib, result.output) == (1.0, 0.5, 7, Output(head="o"))
    ended = any(record["kind"] == "end" for record in fields.get("records", ()))
    under_way = None if ended else Counterexample(arguments={"n": 5}, exact=False, error="")
    assert (result.current_arguments, result.stopped) == (under_way, "stopped" in fields)
