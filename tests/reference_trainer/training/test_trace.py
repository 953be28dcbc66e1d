"""The file of a trace: full disks, devices, its mode and its descriptor."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from reference_trainer.errors import OutputError
from reference_trainer.training.callbacks import Context
from reference_trainer.training.trace import TraceCallback

CONTEXT = Context(
    step=1,
    epoch=1,
    loss=0.5,
    learning_rate=0.5,
    best_loss=0.5,
    elapsed_s=0.5,
    tokens=1,
    epochs=1,
    steps_per_epoch=1,
    total_steps=1,
)


def refusal(call: Callable[[], object]) -> str:
    """Return the message of the `OutputError` of `call`; empty if none is raised."""
    try:
        call()
    except OutputError as error:
        return str(error)
    return ""


def test_full_disk_is_reported_once_and_a_device_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.symlink_to("/dev/full")
    trace = TraceCallback(path, force=True)
    said = [refusal(lambda: trace.on_step_end(CONTEXT)), refusal(trace.close)]
    assert said == [f"{path} can't be written any further: {os.strerror(errno.ENOSPC)}", ""]
    assert path.is_symlink()


def test_refusals_name_the_file_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    path.write_text("seed = 1\n")
    assert refusal(lambda: TraceCallback(path)) == f"{path} exists; give another --trace, or --force to overwrite it"
    assert refusal(lambda: TraceCallback(path, force=True)) == f"{path} is not a trace file; give another --trace"
