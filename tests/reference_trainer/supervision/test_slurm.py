"""The batch script for Slurm in the documentation, with commands in place of Slurm's."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docs" / "examples" / "slurm.sh"
COMMANDS = {
    "scontrol": 'echo "$@" >> scontrol; [ "$1" = show ] && printf "%s\\n" first second; exit 0',
    "srun": 'printf "%s\\n" "$@" > srun; trap "exit 75" TERM; echo begun; '
    'while [ -z "$CODE" ]; do sleep 0.05; done; exit $CODE',
}


def started(folder: Path, code: str = "", **variables: str) -> "subprocess.Popen[str]":
    """Start the script; code: with which its run ends by itself, "" for one that waits for a signal."""
    (folder / "bin").mkdir()
    for name, body in COMMANDS.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
    job = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "CODE": code}
    places = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OUT": str(folder / "run")}
    environment = {**os.environ, **job, **places, **variables}
    command = ["bash", str(SCRIPT), "--lr", "0.1"]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_signal_is_passed_on_and_the_job_is_queued_again(tmp_path: Path, number: signal.Signals) -> None:
    script = started(tmp_path)
    assert script.stdout is not None and script.stdout.readline() == "begun\n"
    script.send_signal(number)
    assert script.wait() == 75
    assert (tmp_path / "scontrol").read_text().splitlines() == ["show hostnames node[1-2]", "requeue 17"]


@pytest.mark.parametrize("code", ["0", "1", "2"])
def test_run_that_ends_by_itself_is_not_queued_again(tmp_path: Path, code: str) -> None:
    script = started(tmp_path, code)
    script.communicate()
    assert script.returncode == int(code)
    assert "requeue" not in (tmp_path / "scontrol").read_text()


@pytest.mark.parametrize("restarts", ["0", "3"])
def test_requeued_job_resumes_with_a_new_rendezvous(tmp_path: Path, restarts: str) -> None:
    if restarts != "0":
        (tmp_path / "run" / "checkpoints" / "student-latest").mkdir(parents=True)
    started(tmp_path, "0", SLURM_RESTART_COUNT=restarts).communicate()
    arguments = " ".join((tmp_path / "srun").read_text().splitlines())
    assert "--nnodes 2 " in arguments and "--rdzv-endpoint first:29500 " in arguments
    assert f"--rdzv-id 17-{restarts} " in arguments
    assert arguments.endswith(f"--out {tmp_path / 'run'}{' --resume latest --force' if restarts != '0' else ''}")
