"""Supervised runs of two machines: two groups of real processes on the loopback address, which are killed."""

import os
import signal
import socket
from pathlib import Path

import pytest

from reference_trainer.errors import OutputError
from reference_trainer.supervision.machines import Announcement, following, leading, shared_directory
from tests.reference_trainer.commands import command
from tests.reference_trainer.conftest import Trainer
from tests.reference_trainer.forked import Process
from tests.reference_trainer.forked import command as run_command
from tests.reference_trainer.supervision.test_until import RUN, ended, held, steps, write_holding
from tests.support.processes import wait_for

HELD = """
import os, pathlib, sys, time

if "reference_trainer.cli.rank" in sys.orig_argv:
    folder = pathlib.Path(os.environ["HELD"])
    (folder / ("rank-" + os.environ["RANK"])).touch()
    while (folder / "hold").exists():
        time.sleep(0.01)
"""
"""A `sitecustomize` that holds ranks from the rendezvous, after which they are started, to their first heartbeat."""


def unused_endpoint() -> str:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return f"127.0.0.1:{unused.getsockname()[1]}"


def started(trainer: Trainer, endpoint: str, rank: int, step: int = 30, **variables: str) -> Process:
    write_holding(trainer)
    place = ["--nnodes", "2", "--node-rank", str(rank), "--rdzv-endpoint", endpoint, "--local-addr", "127.0.0.1"]
    command = ["until", "--step", str(step), *place, *RUN, "--out", "out"]
    return Process(command, trainer.folder, {**trainer.environment, **variables})


def test_run_whose_machines_and_ranks_are_killed_ends_like_the_straight_one(
    trainer: Trainer, request: pytest.FixtureRequest
) -> None:
    endpoint = unused_endpoint()
    for step in (8, 18):
        (trainer.folder / f"hold-{step}").touch()
    first, second = (started(trainer, endpoint, rank) for rank in (0, 1))
    with held(trainer, 8):
        second.send_signal(signal.SIGKILL)  # its rank ends with it
        ended(second)
        second = started(trainer, endpoint, 1)
    with held(trainer, 18) as rank:
        os.kill(rank, signal.SIGKILL)
    (code, output, complaints), (joined_code, joined, joined_complaints) = ended(first), ended(second)
    assert (code, joined_code) == (0, 0), complaints + joined_complaints
    assert "rank 0 ended with signal SIGKILL" in output
    assert "attempt 3: the run came to its end; step 30 of 30 is reached" in output
    assert joined.splitlines()[-1] == "machine 1: the run came to its end"
    assert steps(trainer) == list(range(1, 31))
    request.getfixturevalue("forked_ranks")
    launch = ["launch", "--nproc-per-node", "2", *RUN, "--max-steps", "30", "--out", "straight"]
    straight = run_command(launch, trainer.folder, trainer.environment)
    assert straight.returncode == 0, straight.stderr
    models = [(trainer.folder / out / "model.safetensors").read_bytes() for out in ("out", "straight")]
    assert models[0] == models[1]
    assert not shared_directory(trainer.folder / "out").exists()


@pytest.mark.parametrize("lost", [0, 1])
def test_machine_that_is_lost_before_its_ranks_connect_does_not_block_the_others(
    trainer: Trainer, tmp_path: Path, lost: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HELD)
    (tmp_path / "hold").touch()
    path = os.pathsep.join(filter(None, (str(tmp_path), trainer.environment.get("PYTHONPATH"))))
    endpoint, variables = unused_endpoint(), {"PYTHONPATH": path, "HELD": str(tmp_path)}
    processes = [started(trainer, endpoint, rank, 10, **variables) for rank in (0, 1)]
    wait_for(lambda: len(list(tmp_path.glob("rank-*"))) == 2, "the ranks to be started", 60)
    processes[lost].send_signal(signal.SIGKILL)
    processes[lost].wait()  # its rank is held, and has its standard output
    processes[lost] = started(trainer, endpoint, lost, 10, **variables)
    assert processes[lost].stdout.readline()  # it knows the attempt that has lost it, or begins another one
    (tmp_path / "hold").unlink()
    (code, output, complaints), (joined_code, _, joined_complaints) = map(ended, processes)
    assert (code, joined_code) == (0, 0), complaints + joined_complaints
    assert ("machine 1 was lost and came back: this attempt ends" in output) == bool(lost)
    assert steps(trainer) == list(range(1, 11))
    assert not shared_directory(trainer.folder / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--node-rank 1", "--node-rank has no effect without --nnodes"),
        ("--nnodes 2 --node-rank 0", "--nnodes 2 needs --rdzv-endpoint HOST:PORT"),
        ("--nnodes 2 --rdzv-endpoint localhost:29500", "needs --node-rank 0 to 1"),
        ("--nnodes 2 --rdzv-endpoint localhost:29500 --node-rank 2", "needs --node-rank 0 to 1"),
    ],
)
def test_machines_without_a_number_or_an_endpoint_are_refused(options: str, says: str, tmp_path: Path) -> None:
    refused = command("until", *options.split(), "--", "distill", "--out", str(tmp_path / "out"))
    assert refused.code == 2 and says in refused.complaints


def test_two_supervisors_of_one_machine_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with leading(out) as leader, following(out, 1):
        leader.announce(Announcement(run_id="new"))  # files are removed at the end of an announced run
        with pytest.raises(OutputError, match="another supervisor of this machine"), following(out, 1):
            pass
        assert (shared_directory(out) / "machine-1").exists()
    assert not shared_directory(out).exists()
