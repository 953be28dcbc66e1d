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


def test_thread_that_computes_makes_a_waiting_process_active() -> None:
    script = "import threading; print(flush=True); threading.Thread(target=any, args=(iter(int, 1),)).start()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as computing:
        assert computing.stdout is not None and computing.stdout.readline()
        while not tree.use(computing.pid).active or tree.use(computing.pid).cpu_s == 0.0:
            assert computing.poll() is None
        computing.kill()
