"""A rank of a supervised run: `python -m reference_trainer.cli.rank SUPERVISOR DIRECTORY ARGUMENT...`.

The rank runs the command `reference-trainer ARGUMENT...`. In addition, it writes its heartbeat, the error that ends it,
and, if it was interrupted after it saved a checkpoint, an empty file `saved`, into DIRECTORY. On Linux, the rank is
killed when its supervisor, the process with the id SUPERVISOR, ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reference_trainer import interrupts
from reference_trainer.errors import (
    CallbackError,
    DataError,
    LabelError,
    LostRankError,
    ModelFileError,
    RankError,
    SettingError,
    ShapeError,
    StopRequestedError,
)
from reference_trainer.supervision.heartbeat import SAVED, Failure, Heart

if TYPE_CHECKING:
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.config.settings import Settings
    from reference_trainer.pipeline.report import DistillResult

PR_SET_PDEATHSIG = 1
INPUT_ERRORS = (SettingError, DataError, ModelFileError, ShapeError, LabelError, CallbackError, ImportError)
"""Errors of settings, data, models, callbacks and packages, which another attempt would raise again."""


def exit_with_parent(parent: int) -> None:
    """Let the kernel kill this process when `parent` ends, on Linux; exit now if `parent` has ended already."""
    # The parent may end before the call of prctl, so the id of the parent is compared after the call.
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(interrupts.INTERRUPTED)


def main() -> None:
    """Run one rank."""
    # Handle signals and the end of the parent first, because the imports below take a while.
    interrupts.exit_at_once()
    parent, directory, *arguments = sys.argv[1:]
    exit_with_parent(int(parent))
    heart = Heart(Path(directory) / f"rank-{os.environ.get('RANK', '0')}.json")

    def distil(settings: Settings, *, lines: Lines) -> DistillResult:
        from reference_trainer.callbacks.base import Callback, Context
        from reference_trainer.cli.group import line_of
        from reference_trainer.pipeline.distill import distill

        class HeartbeatCallback(Callback):
            def on_step_end(self, context: Context) -> None:
                heart.step = context.step

        try:
            return distill(settings, callbacks=[HeartbeatCallback()], lines=lines)
        except (StopRequestedError, LostRankError):  # not an error of this rank
            raise
        except Exception as error:
            heart.fail(
                Failure(
                    step=heart.step,
                    type=type(error).__name__,
                    message=line_of(error),
                    is_input=isinstance(error, INPUT_ERRORS),
                    is_of_other_rank=isinstance(error, RankError),
                )
            )
            raise

    from reference_trainer.cli import main as command

    try:
        command(arguments, prog_name="reference-trainer", obj=distil)
    except SystemExit as error:
        if error.code == interrupts.SAVED:
            (Path(directory) / SAVED).touch()
        raise


if __name__ == "__main__":
    main()
