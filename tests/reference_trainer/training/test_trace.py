"""The file of a trace: full disks, devices, its mode and its descriptor."""

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from falsifiers.support.descriptors import held
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


@settings(max_examples=16, deadline=None)
@given(mask=st.sampled_from([0o000, 0o022, 0o027, 0o077]), events=st.integers(0, 2), removed=st.booleans())
def test_trace_is_an_ordinary_file(mask: int, events: int, removed: bool) -> None:
    """Its mode follows the umask, no descriptor is open after `close`, and it may have been removed meanwhile."""
    before = os.umask(mask)
    try:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "trace")
            trace = TraceCallback(path)
            mode = path.stat().st_mode & 0o777
            for _ in range(events):
                trace.on_step_end(CONTEXT)
            if removed:
                path.unlink()
            trace.close()
            assert held(path) == []
            assert path.exists() == (events > 0 and not removed)
    finally:
        os.umask(before)
    assert mode == 0o666 & ~mask
