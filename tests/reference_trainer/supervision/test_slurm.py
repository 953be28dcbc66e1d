"""The batch script for Slurm in the documentation, with commands in place of Slurm's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reference_trainer import read_metrics
from tests.reference_trainer.conftest import Trainer
from tests.reference_trainer.forked import is_complete

SCRIPT = Path(__file__).parents[3] / "docs" / "examples" / "slurm.sh"
COMMANDS = {
    "scontrol": 'echo "$@" >> scontrol; [ "$1" = show ] && printf "%s\\n" first second; exit 0',
    "srun": 'printf "%s\\n" "$@" > srun; trap "exit 75" TERM; echo begun; '
    'while [ -z "$CODE" ]; do sleep 0.05; done; exit $CODE',
}


SIGNALLED = """
import os, signal, time
from reference_trainer import Callback

class Waiting(Callback):
    def attach(self, pipeline):
        self.wait("loading")

    def on_save(self, context):
        self.wait("saving")

    def on_evaluate(self, context):
        self.wait("evaluation")

    def wait(self, phase):
        if os.environ["PHASE"] == phase:
            print("begun", flush=True)
            while not getattr(signal.getsignal(signal.SIGTERM), "received", False):
                time.sleep(0.01)
"""
"""A callback that waits in a phase until the process has received a signal, which only the training notes."""
TRAINER = f"""
while [ "$1" != distill ]; do shift; done
exec {sys.executable} -m reference_trainer launch --nproc-per-node 1 -- "$@" --device cpu
"""


def started(folder: Path, code: str = "", **variables: str) -> "subprocess.Popen[str]":
    """Start the script; code: with which its run ends by itself, "" for one that waits for a signal."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, body in COMMANDS.items():
        body = TRAINER if name == "srun" and "PHASE" in variables else body
        path = folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
    job = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "CODE": code}
    places = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OUT": str(folder / "run")}
    environment = {**os.environ, **variables, **job, **places}
    command = ["bash", str(SCRIPT), *variables.get("SETTINGS", "--lr 0.1").split()]
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


def test_run_that_is_signalled_while_it_loads_saves_and_evaluates_loses_nothing(trainer: Trainer) -> None:
    folder = trainer.folder
    (folder / "signalled.py").write_text(SIGNALLED)
    (folder / "callbacks.toml").write_text('[[callbacks]]\nuse = "signalled:Waiting"\n')
    settings = "--epochs 4000 --max-steps 12 --warmup 5 --log-every 1 --eval-every 4 --save-every 3"
    settings += " --callbacks callbacks.toml"
    codes = []
    for phase in ("loading", "saving", "evaluation", ""):
        script = started(folder, **{**trainer.environment, "PHASE": phase, "SETTINGS": settings})
        assert script.stdout is not None
        if phase:
            assert "begun\n" in iter(script.stdout.readline, ""), f"the run does not come to {phase}"
            script.send_signal(signal.SIGUSR1)
        output, _ = script.communicate()
        codes.append(script.returncode)
    assert codes == [130, 75, 75, 0], output
    assert (folder / "scontrol").read_text().count("requeue 17") == 3
    assert [line.step for line in read_metrics(folder / "run/metrics.jsonl")] == list(range(1, 13))
    assert is_complete(folder / "run")


@pytest.mark.parametrize("restarts", ["0", "3"])
def test_requeued_job_resumes_with_a_new_rendezvous(tmp_path: Path, restarts: str) -> None:
    if restarts != "0":
        (tmp_path / "run" / "checkpoints" / "student-latest").mkdir(parents=True)
    started(tmp_path, "0", SLURM_RESTART_COUNT=restarts).communicate()
    arguments = " ".join((tmp_path / "srun").read_text().splitlines())
    assert "--nnodes 2 " in arguments and "--rdzv-endpoint first:29500 " in arguments
    assert f"--rdzv-id 17-{restarts} " in arguments
    assert arguments.endswith(f"--out {tmp_path / 'run'}{' --resume latest --force' if restarts != '0' else ''}")
