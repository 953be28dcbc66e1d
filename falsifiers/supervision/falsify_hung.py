"""An attack on a run that hangs, in a process of its own. The subject is `pipeline.distill`, or has its names."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from falsifiers.resume.runs import STEPS, ended, settings
from falsifiers.support.interruptions import in_child
from reference_trainer import Callback

HUNG_S = 20.0
"""How long the second step takes. The watchdog is asked for one second, and leaves within another one."""


class Hanging(Callback):
    """Callback that waits in the second step for what never comes."""

    def on_step_end(self, context: Any) -> None:
        if context.step == 2:
            threading.Event().wait(HUNG_S)
            raise RuntimeError("the step ended")


def falsify_hung_run_ends(subject: Any) -> None:
    """The process leaves before the step ends, and has written the stack of the thread that waits.

    A run whose steps end is not disturbed.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        _, result = ended(subject, settings(directory, "straight", hang_after=60))
        assert result.train.steps_completed == STEPS, f"a run that does not hang: {result.train}"

        def hung() -> None:
            with (directory / "stderr").open("wb") as file:
                os.dup2(file.fileno(), 2)
            ended(subject, settings(directory, "out", hang_after=1), [Hanging()])

        said = in_child(hung)
        assert said == "", f"a run that hangs does not leave: {said}"
        stacks = (directory / "stderr").read_text()
        assert "Timeout" in stacks and "in on_step_end" in stacks, f"standard error has no stack of the step: {stacks}"
