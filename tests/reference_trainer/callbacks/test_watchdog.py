"""Processes that hang, and an observer that computes at the end of one."""

import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from reference_trainer.callbacks import watchdog
from reference_trainer.callbacks.watchdog import WatchdogCallback
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher
from reference_trainer.plan.schedule import Schedule
from reference_trainer.training.loop import Objective, train
from reference_trainer.training.state import RunServices
from tests.support.processes import python

PROGRAM = """
    import ctypes, os, sys, threading, time, types
    from reference_trainer.callbacks.watchdog import WatchdogCallback

    def other_thread():
        time.sleep(500)

    def step_that_hangs():
        ctypes.PyDLL(None).sleep(500)  # native code that holds the lock of the interpreter

    threading.Thread(target=other_thread, daemon=True).start()
    watchdog = WatchdogCallback(0.2)
    os.close(2)  # its number would be given to the next file
    victim = open("victim", "w")
    watchdog.on_step_end(types.SimpleNamespace(hook="on_step_end", step=7))
    step_that_hangs()
    print("the step has ended")
"""


def test_stacks_of_all_threads_are_written_and_the_process_ends(tmp_path: Path) -> None:
    done = python("-c", textwrap.dedent(PROGRAM), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Timeout (" in done.stderr
    assert "in step_that_hangs" in done.stderr
    assert "in other_thread" in done.stderr
    assert (tmp_path / "victim").read_text() == ""


def test_slow_micro_batches_evaluations_and_saves_start_the_timer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, now = list[Any](), [100.0]
    timer = SimpleNamespace(
        dump_traceback_later=lambda seconds, **options: asked.append((now[0], seconds)),
        cancel_dump_traceback_later=lambda: asked.append((now[0], None)),
    )
    monkeypatch.setattr(watchdog, "faulthandler", timer)
    monkeypatch.setattr(threading, "Timer", mock.Mock())  # it would write to the descriptor
    callback = WatchdogCallback(30.0, descriptor=7, clock=lambda: now[0])

    def slowly(result: Any) -> Any:
        now[0] += 20
        assert now[0] < asked[-1][0] + asked[-1][1], f"{now[0]} s: the timer of {asked[-1]} ends a live run"
        return result

    class Slow(FixtureStudent):
        def forward(self, tokens: Any) -> Any:
            return slowly(super().forward(tokens))

    table, tokens = torch.eye(2), torch.tensor([[0, 1]])
    train(
        FixtureTeacher(table),
        Slow(table, 1.0),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        None,
        schedule=Schedule(epochs=2, steps_per_epoch=2, accumulation=4, eval_every=1, save_every=1),
        objective=Objective(temperature=1.0, ce_weight=0.5, kd_weight=0.5),
        learning_rate=lambda step: 0.1,
        callbacks=[callback],
        services=RunServices(evaluate=lambda: slowly({"loss": 1.0}), save=lambda saved: slowly(Path("checkpoint"))),
    )


COMPUTING = """
import sys, threading
import torch
from falsifiers.observers.events import context, observer
from reference_trainer import Callbacks
from reference_trainer.callbacks.dispatch import leave
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
    ended = python("-c", COMPUTING)
    assert (ended.returncode, ended.stdout) == (7, "the last line\n")
    assert "takes too long" in ended.stderr
