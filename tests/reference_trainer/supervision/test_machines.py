"""Supervised runs of two machines: two groups of real processes on the loopback address, which are killed."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from reference_trainer.errors import OutputError
from reference_trainer.supervision import machines
from reference_trainer.supervision.machines import Announcement, Leader, following, next_announcement, place_of
from tests.reference_trainer.commands import command
from tests.reference_trainer.conftest import Trainer
from tests.reference_trainer.forked import Process
from tests.reference_trainer.forked import command as run_command
from tests.reference_trainer.supervision.test_until import beat, ended, steps

RUN = ("--", "distill", "--epochs", "4000", "--log-every", "1", "--save-every", "5", "--keep", "2", "--warmup", "5")


def started(trainer: Trainer, endpoint: str, rank: int) -> Process:
    place = ["--nnodes", "2", "--node-rank", str(rank), "--rdzv-endpoint", endpoint, "--local-addr", "127.0.0.1"]
    return Process(["until", "--step", "60", *place, *RUN, "--out", "out"], trainer.folder, trainer.environment)


def test_run_whose_machines_and_ranks_are_killed_ends_like_the_straight_one(trainer: Trainer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"127.0.0.1:{unused.getsockname()[1]}"
    first, second = (started(trainer, endpoint, rank) for rank in (0, 1))
    beat(trainer, lambda read: read.step > 7)
    second.send_signal(signal.SIGKILL)  # its rank ends with it
    ended(second)
    second = started(trainer, endpoint, 1)
    os.kill(beat(trainer, lambda read: read.step > 25).pid, signal.SIGKILL)
    (code, said, complaints), (joined_code, joined, joined_complaints) = ended(first), ended(second)
    assert (code, joined_code) == (0, 0), complaints + joined_complaints
    assert "rank 0 ended with signal SIGKILL" in said
    assert "attempt 3: the run came to its end; step 60 of 60 is reached" in said
    assert joined.splitlines()[-1] == "machine 1: the run came to its end"
    assert steps(trainer) == list(range(1, 61))
    launch = ["launch", "--nproc-per-node", "2", *RUN, "--max-steps", "60", "--out", "straight"]
    straight = run_command(launch, trainer.folder, trainer.environment)
    assert straight.returncode == 0, straight.stderr
    models = [(trainer.folder / out / "model.safetensors").read_bytes() for out in ("out", "straight")]
    assert models[0] == models[1]
    assert not place_of(trainer.folder / "out").exists()


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


def test_announcement_of_a_killed_leader_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "EVERY_S", 0.02)
    out, looks = tmp_path / "out", 0
    killed = Leader(out)
    killed.announce(Announcement(run_id="old"))
    killed._closed.set()  # as a process that ends does; its file stays
    alive = Leader(out)

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        time.sleep(seconds)
        if looks == 50:
            alive.announce(Announcement(run_id="new", arguments=("distill",)))

    announced = next_announcement(out, "", pause)
    assert announced == Announcement(run_id="new", arguments=("distill",)) and looks >= 50
    with following(out, 1):
        with pytest.raises(OutputError, match="another supervisor of this machine"), following(out, 1):
            pass
        assert (place_of(out) / "machine-1").exists()
    alive.close()
    assert not place_of(out).exists()
