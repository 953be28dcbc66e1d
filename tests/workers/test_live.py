"""The limits of a running task."""

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pv.workers import tree
from pv.workers.live import MAX_LINE, Live, Task
from pv.workers.tree import Use


@pytest.fixture
def live() -> Iterator[Live]:
    with selectors.DefaultSelector() as selector:
        started = Live(Task(key="k", body=None, limit_s=3.0, memory_mib=5), "t1", selector)
        yield started
        started.close()


def test_a_line_without_end_does_not_grow_without_bound(live: Live) -> None:
    for _ in range(MAX_LINE // (1 << 15) + 1):
        os.write(live.evidence.write_fd, b"x" * (1 << 15))
        live.take_evidence()
    os.write(live.evidence.write_fd, b'\n{"kind": "end"}\n')
    live.close_write_ends()
    assert live.reply(Path()).records == ({"kind": "end"},)


def looked(live: Live, *uses: tuple[float, bool]) -> str:
    """Return what stopped a task that was looked at once a second, each time with its CPU time and its activity."""
    for second, (cpu_s, active) in enumerate(uses, 1):
        live.look(Use(private_bytes=0, cpu_s=cpu_s, active=active), live.start + second)
    return live.stopped


@pytest.mark.parametrize(
    ("uses", "stopped"),
    [
        ([(0.01 * second, True) for second in range(100)], ""),  # it waits for a core most of the time
        ([(1.0, True), (2.0, True), (3.0, True)], ""),
        ([(1.0, True), (2.0, True), (3.1, True)], "time"),
        ([(4.0, False)], "time"),  # of several processes, within one second
        ([(0.0, False)] * 4, "idle"),
        ([(0.5, False), *[(0.5, False), (0.5, True)] * 4], "idle"),
    ],
)
def test_limit_counts_cpu_time_and_idle_time(live: Live, uses: list[tuple[float, bool]], stopped: str) -> None:
    assert looked(live, *uses) == stopped


def test_memory_above_its_limit_stops_a_task(live: Live) -> None:
    live.look(Use(private_bytes=6 << 20, cpu_s=0.0, active=True), live.start)
    assert live.stopped == "memory"


def test_thread_that_computes_makes_a_waiting_process_active() -> None:
    script = "import threading; print(flush=True); threading.Thread(target=any, args=(iter(int, 1),)).start()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as computing:
        assert computing.stdout is not None and computing.stdout.readline()
        while not tree.use(computing.pid).active or tree.use(computing.pid).cpu_s == 0.0:
            assert computing.poll() is None
        computing.kill()
