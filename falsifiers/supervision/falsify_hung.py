"""Attacks on runs that hang, or that get SIGTERM, in a process of their own. The subject is `pipeline.distill`."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.resume.runs import STEPS, ended, settings
from falsifiers.support.interruptions import in_child
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small
from reference_trainer import Callback, Lines, Settings, interrupts
from reference_trainer.storage.checkpoint_files import saved_steps

HUNG_S = 20.0
"""How long the second step takes. The watchdog is asked for one second, and leaves within another one."""


class Stuck(Lines):
    """Lines of which that of the teacher's hundredth step is never written."""

    def write(self, line: str) -> None:
        if line.startswith("teacher: step"):
            threading.Event().wait(HUNG_S)
            raise RuntimeError("the line was written")


class Hanging(Callback):
    """Callback that waits in the second step for what never comes."""

    def on_step_end(self, context: Any) -> None:
        if context.step == 2:
            threading.Event().wait(HUNG_S)
            raise RuntimeError("the step ended")


def falsify_hung_run_ends(subject: Any) -> None:
    with scratch() as directory:
        _, result = ended(subject, settings(directory, "straight", hang_after=60))
        assert result.train.steps_completed == STEPS, f"a run that does not hang: {result.train}"

        def hung() -> None:
            ended(subject, settings(directory, "out", hang_after=1), [Hanging()])

        _assert_left(hung, directory, "-after 1: no progress of the student since on_step_end of step 2")


def falsify_hung_training_of_a_teacher_ends(subject: Any) -> None:
    assert Settings().hang_after >= 1800, f"by default a step may take {Settings().hang_after} s"
    with scratch() as directory:

        def hung() -> None:
            chosen = small(directory, out=directory / "out", teacher_steps=100, hang_after=5.0)
            subject.distill(chosen, lines=Stuck())

        _assert_left(hung, directory, "no progress of the teacher since on_step_end of step 100")


def _assert_left(work: Callable[[], None], directory: Path, line: str) -> None:
    """Assert that the process leaves before the step ends, and has written the stack of the thread that waits."""
    stderr = directory / "stderr"

    def hung() -> None:
        with stderr.open("wb") as file:
            os.dup2(file.fileno(), 2)
        work()

    said = in_child(hung)
    assert said == "", f"a run that hangs does not leave: {said}"
    stacks = stderr.read_text()
    assert "Timeout" in stacks and "in on_step_end" in stacks, f"standard error has no stack of the step: {stacks}"
    assert line in stacks, f"standard error does not say {line!r}: {stacks}"


class Terminating(Callback):
    """Callback that sends SIGTERM to its process in a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_optimizer_step(self, context: Any) -> None:
        if context.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@given(save_every=st.sampled_from([0, 1, 5000]), step=st.integers(1, 2))
def falsify_asked_run_has_saved_its_step(subject: Any, save_every: int, step: int) -> None:
    with scratch() as directory:
        run(subject, small(directory, out=directory / "straight"))

        def asked() -> None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            interrupts.exit_at_once()  # as the command does first
            interrupts.raise_once()
            settings = small(directory, out=directory / "out").model_copy(update={"save_every": save_every})
            try:
                subject.distill(settings, callbacks=[Terminating(step)], lines=Lines(io.StringIO()))
            except BaseException as error:
                (directory / "ended").write_text(type(error).__name__)

        said = in_child(asked)
        ended = (directory / "ended").read_text() if (directory / "ended").exists() else said
        expected = "StopRequestedError" if save_every else "KeyboardInterrupt"
        assert ended == expected, f"saved every {save_every} steps and asked in step {step}, the run ends with {ended}"
        seen = saved_steps(directory / "out" / "checkpoints", "student")
        wanted = list(range(1, step + 1)) if save_every == 1 else [step] if save_every else []
        assert seen == wanted, f"saved every {save_every} steps, asked in step {step}, {seen} are saved"
