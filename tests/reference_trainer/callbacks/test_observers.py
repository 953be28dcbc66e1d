"""An observer that computes at the end of a process; delivery is attacked in `falsifiers/observers`."""

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


def test_observer_that_computes_at_the_exit_does_not_abort_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", COMPUTING], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (7, "the last line\n")
    assert "takes too long" in ended.stderr
