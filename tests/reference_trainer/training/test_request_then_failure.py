"""A run that is asked to stop, and then fails: data-loader workers end with a signal to the process group."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.reference_trainer.conftest import Trainer

PROGRAM = Path(__file__).with_name("data_loader_run.py")


def started(trainer: Trainer, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Start a run with a DataLoader in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), "distill", "--save-every", "1000", *arguments],
        cwd=trainer.folder,
        env={**trainer.environment, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_signal_to_the_process_group_loses_no_step(trainer: Trainer) -> None:
    """The workers are killed while step 3 waits for them; step 2 is saved, and the run ends like a straight one."""
    run = started(trainer, HANG="1")
    assert run.stdout is not None
    assert any(line == "step 3 fetches\n" for line in run.stdout)
    os.killpg(run.pid, signal.SIGTERM)
    said, complaints = run.communicate(timeout=500)
    assert run.returncode == 75, said + complaints
    assert "then failed with" in complaints and "--resume latest" in complaints
    assert (trainer.folder / "out/checkpoints/student-step2/manifest.json").is_file()
    for arguments in (("--resume", "latest"), ("--out", "straight")):
        again = started(trainer, *arguments)
        said, complaints = again.communicate(timeout=500)
        assert again.returncode == 0, said + complaints
    cut, straight = ((trainer.folder / out / "model.safetensors").read_bytes() for out in ("out", "straight"))
    assert cut == straight
