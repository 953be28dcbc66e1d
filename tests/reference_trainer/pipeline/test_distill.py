"""Why a distillation is refused, and the note of an interrupt before each of its last lines."""

import io
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

import reference_trainer
from falsifiers.support.interruptions import LINES_AT_MOST, at_line
from falsifiers.support.runs import small
from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.callbacks.progress import Lines
from reference_trainer.errors import StopRequestedError
from reference_trainer.interrupts import WRITTEN
from reference_trainer.pipeline.distill import distill
from reference_trainer.storage.checkpoints import saved_steps
from tests.reference_trainer.forked import is_complete


def run(directory: Path, callback: Callback | None = None, **others: Any) -> None:
    settings = small(directory, **{"out": directory / "out", "batch_size": 16, "save_every": 5000, **others})
    distill(settings, callbacks=[callback] if callback else [], lines=Lines(io.StringIO()))


class Ended(Callback):
    """Raises an interrupt before the line of `file` with this number after the training."""

    def __init__(self, moment: int, file: str | None) -> None:
        self.moment, self.file = moment, file

    def on_train_end(self, context: Context) -> None:
        at_line(self.moment, self.interrupt, {self.file})
        frame = sys._getframe()
        while frame.f_back is not None:  # functions that are running already are traced too
            frame = frame.f_back
            if frame.f_code.co_filename == self.file:
                frame.f_trace = sys.gettrace()

    def interrupt(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("module", ["pipeline/distill.py", "storage/files.py"])
def test_interrupt_after_the_training_reports_whether_the_model_was_written(tmp_path: Path, module: str) -> None:
    file = str(Path(reference_trainer.__file__).parent / module)
    run(tmp_path, out=tmp_path / "first")  # trains the teacher
    for moment in itertools.count(1):
        assert moment < LINES_AT_MOST
        out = tmp_path / f"out-{moment}"
        before = sys.gettrace()
        try:
            run(tmp_path, Ended(moment, file), out=out)
            break
        except KeyboardInterrupt as interrupt:
            assert (WRITTEN in getattr(interrupt, "__notes__", [])) == is_complete(out), f"before line {moment}"
        except StopRequestedError:
            assert saved_steps(out / "checkpoints", "student") and not is_complete(out), f"before line {moment}"
        finally:
            sys.settrace(before)
    assert moment > 1
