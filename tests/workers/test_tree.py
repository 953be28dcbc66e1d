"""Process trees: their members, and how to kill them."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from pv.workers import tree

SCRIPT = "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'input()']); print(c.pid, flush=True)"
MARK = uuid.uuid4().hex


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """A process that waits, with a child that waits."""
    started = subprocess.Popen(
        [sys.executable, "-c", f"{SCRIPT}; c.wait()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TREE_MARK": MARK},
    )
    yield started
    started.communicate()


def test_descendants_are_found_and_killed_with_their_root(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert process.pid in tree.children(os.getpid())
    assert child not in tree.children(os.getpid())
    assert tree.descendants(process.pid) == [child]
    assert set(tree.marked(f"TREE_MARK={MARK}")) >= {process.pid}
    assert tree.alive(process.pid) and tree.alive(child)
    assert tree.use(process.pid).private_bytes > tree.use(child).private_bytes > 0
    assert tree.use(process.pid).cpu_s > 0
    tree.kill_tree(process.pid)
    assert process.wait() == -9
    assert not tree.alive(child) and not tree.alive(process.pid)


def test_thread_that_computes_makes_a_waiting_process_active() -> None:
    script = "import threading; print(flush=True); threading.Thread(target=any, args=(iter(int, 1),)).start()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as computing:
        assert computing.stdout is not None and computing.stdout.readline()
        while not tree.use(computing.pid).active or tree.use(computing.pid).cpu_s == 0.0:
            assert computing.poll() is None
        computing.kill()


def test_process_that_waits_is_not_active(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stdout.readline()
    while tree.use(process.pid).active:  # until both have started
        assert process.poll() is None


def test_process_that_does_not_exist_is_no_error(process: subprocess.Popen[str]) -> None:
    process.communicate()
    assert tree.children(process.pid) == []
    assert not tree.alive(process.pid)
    assert tree.use(process.pid) == tree.Use(private_bytes=0, cpu_s=0.0, active=False)
    tree.kill(process.pid)
