"""The command `launch`: real processes under torch's agent, once."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.reference_trainer import forked
from tests.reference_trainer.commands import command
from tests.reference_trainer.forked import Process

MODELS = "--layers 1 --width 16 --teacher-layers 1 --teacher-width 16 --teacher-steps 1 --teacher-cache cache"
DATA = "--data text --length 8 --batch-size 4 --device cpu"
LAUNCH = f"launch --nproc-per-node 2 -- distill {MODELS} {DATA}".split()


@pytest.mark.usefixtures("forked_ranks")
def test_interrupted_processes_save_and_exit_75(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(bytes(range(100)) * 20)
    options = ["--epochs", "4000", "--log-every", "1"]
    process = Process([*LAUNCH, *options], tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"})
    next(line for line in process.stdout if line.startswith("  Step 3/"))
    process.send_signal(signal.SIGTERM)
    complaints = process.stderr.read()
    assert process.wait() == 75, complaints
    assert len([line for line in complaints.splitlines() if "a checkpoint was saved" in line]) == 1
    assert "no model was written" not in complaints
    assert list(tmp_path.glob("distilled/checkpoints/student-step*"))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["launch"], 2, "Missing option '--nproc-per-node'"),
        (["launch", "--nproc-per-node", "2"], 2, "missing the run after --, such as `-- distill --out DIR`"),
        (["launch", "--nproc-per-node", "2", "--nnodes", "2", "--", "distill"], 2, "needs --rdzv-endpoint HOST:PORT"),
        (["launch", "--nproc-per-node", "2", "--", "distill", "--nonsense"], 2, "No such option '--nonsense'"),
        (["launch", "--nproc-per-node", "2", "--", "distill", "--epochs", "x"], 2, "invalid value 'x' for --epochs"),
        (["launch", "--nproc-per-node", "2", "--", "distill", "--parts", "nothing:Mine"], 2, "cannot import nothing"),
    ],
)
def test_refusals_come_before_any_process(arguments: list[str], code: int, says: str) -> None:
    ended = command(*arguments)
    assert ended.code == code
    assert says in ended.complaints


MINE = """
from reference_trainer import Callback

class Writes(Callback):
    def __init__(self, path):
        self.path = path

    def on_train_end(self, context):
        with open(f"{self.path}-{context.rank}", "w") as file:
            file.write(str(context.step))
"""


def launched(folder: Path, callbacks: str) -> "subprocess.CompletedProcess[str]":
    """Launch two processes with the callbacks of a file, which may be in a module of the working directory."""
    (folder / "text").write_bytes(bytes(range(100)))
    (folder / "writing.py").write_text(MINE)
    (folder / "callbacks.toml").write_text(callbacks)
    options = ["--epochs", "1", "--callbacks", "callbacks.toml"]
    return forked.command([*LAUNCH, *options], folder, {**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.usefixtures("forked_ranks")
def test_two_processes_train_one_student_and_have_the_callbacks_of_the_file(tmp_path: Path) -> None:
    """Lines and files are the same as from one process, though both write to the same standard output."""
    ended = launched(tmp_path, '[[callbacks]]\nuse = "writing:Writes"\narguments = {path = "ended"}\n')
    assert ended.returncode == 0, ended.stderr
    assert [(tmp_path / f"ended-{rank}").read_text() for rank in range(2)] == ["2", "2"]
    lines = ended.stdout.splitlines()
    assert len([line for line in lines if line.startswith("2 steps in ")]) == 1
    assert [line for line in lines if line.startswith("wrote")] == ["wrote distilled"]
    assert (tmp_path / "distilled" / "model.safetensors").is_file()


def test_callbacks_are_refused_once_and_not_by_every_process(tmp_path: Path) -> None:
    ended = launched(tmp_path, '[[callbacks]]\nuse = "writing:Writes"\n')
    assert ended.returncode == 2
    assert "missing a required argument: 'path'" in ended.stderr and len(ended.stderr.splitlines()) == 1


@pytest.mark.usefixtures("forked_ranks")
def test_two_machines_meet_and_train_one_student(tmp_path: Path) -> None:
    """Two agents with one process each; the ranks of both have the first place on their machine."""
    (tmp_path / "text").write_bytes(bytes(range(100)))
    (tmp_path / "writing.py").write_text(MINE.replace("context.step", "[context.step, context.local_rank]"))
    (tmp_path / "callbacks.toml").write_text('[[callbacks]]\nuse = "writing:Writes"\narguments = {path = "ended"}\n')
    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"127.0.0.1:{unused.getsockname()[1]}"
    place = f"--nproc-per-node 1 --nnodes 2 --rdzv-endpoint {endpoint} --local-addr 127.0.0.1"
    arguments = ["launch", *place.split(), *LAUNCH[3:], "--epochs", "1", "--callbacks", "callbacks.toml"]
    machines = [Process(arguments, tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"}) for _ in range(2)]
    complaints = [machine.stderr.read() for machine in machines]
    assert [machine.wait() for machine in machines] == [0, 0], complaints
    assert [(tmp_path / f"ended-{rank}").read_text() for rank in range(2)] == ["[2, 0]", "[2, 0]"]
    assert (tmp_path / "distilled" / "model.safetensors").is_file()
