"""An attack on a run that gets SIGTERM in a process of its own. The subject is `pipeline.distill`."""

from __future__ import annotations

import io
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.interruptions import in_child
from falsifiers.support.small_runs import run, small
from reference_trainer import Callback, Lines, interrupts
from reference_trainer.storage.checkpoint_files import saved_steps

STEPS = 3


class Terminating(Callback):
    """Callback that sends SIGTERM to its process in a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_optimizer_step(self, context: Any) -> None:
        if context.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@given(save_every=st.sampled_from([0, 1, 5000]), step=st.integers(1, STEPS - 1))
def falsify_asked_run_has_saved_its_step(subject: Any, save_every: int, step: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
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
