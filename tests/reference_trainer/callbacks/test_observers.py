"""Observers at the end of a process, and their memory; their delivery is attacked in `falsifiers/observers`."""

import subprocess
import sys

COMPUTING = """
import sys, threading
import torch
from falsifiers.observers.events import context, observer
from reference_trainer import Callbacks
from reference_trainer.callbacks.observers import leave
begun = threading.Event()
def compute(hook, at):
    begun.set()
    while True:
        torch.ones(300, 300) @ torch.ones(300, 300)
callbacks = Callbacks([observer(compute)], wait_s=0.1)
callbacks.fire("on_log", context(1))
begun.wait()
callbacks.close()
print("the last line")
leave(7)
"""
FORGOTTEN = """
import time
from falsifiers.observers.events import context, observer
from reference_trainer import Callbacks
callbacks = Callbacks([observer(lambda hook, at: (time.sleep(0.05), print(at.step)))])
for step in range(3):
    callbacks.fire("on_log", context(step))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_observer_that_computes_at_the_exit_does_not_abort_the_process() -> None:
    ended = run(COMPUTING)
    assert (ended.returncode, ended.stdout) == (7, "the last line\n")
    assert "takes too long" in ended.stderr


def test_callbacks_that_are_not_closed_are_closed_at_the_exit() -> None:
    ended = run(FORGOTTEN)
    assert (ended.returncode, ended.stdout) == (0, "0\n1\n2\n")
