"""Heartbeats of real processes, and what is done about those that are silent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from reference_trainer.supervision import heartbeat
from reference_trainer.supervision.heartbeat import Beat, Heart, beats, is_alive, kill_silent, kill_stale, silent

PROGRAM = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from reference_trainer.supervision.heartbeat import Heart\n"
    "heart = Heart(Path(sys.argv[1]))\n"
    "heart.step = 7\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def beating(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that writes its heartbeat, with step 7."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "rank-3.json")])
    until(lambda: [beat.step for beat in beats(tmp_path)] == [7])
    yield process
    process.kill()
    process.wait()


def until(ready: object) -> None:
    for _ in range(4000):
        if ready():  # a function without arguments
            return
        time.sleep(0.005)
    raise AssertionError("nothing happens")


def test_stopped_process_is_killed_within_seconds(tmp_path: Path, beating: "subprocess.Popen[bytes]") -> None:
    os.kill(beating.pid, signal.SIGSTOP)
    killed: list[Beat] = []
    until(lambda: killed.extend(kill_silent(tmp_path, 1e6)) or killed)
    assert [beat.pid for beat in killed] == [beating.pid]
    assert beating.wait() == -signal.SIGKILL
    assert kill_silent(tmp_path, 0.0) == []


def test_process_that_an_earlier_supervisor_left_is_killed(tmp_path: Path, beating: "subprocess.Popen[bytes]") -> None:
    (tmp_path / "rank-1.json").write_text("{")
    (tmp_path / ".rank-1.json.5.partial").write_text("")
    (tmp_path / "notes").write_text("")
    assert [beat.pid for beat in kill_stale(tmp_path)] == [beating.pid]
    assert beating.wait() == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_another_process_with_the_number_is_left_alone(tmp_path: Path) -> None:
    Heart(tmp_path / "rank-0.json").beat()
    (own,) = beats(tmp_path)
    assert own.pid == os.getpid() and is_alive(own)
    other = replace(own, born="1", time=0.0)
    (tmp_path / "rank-0.json").unlink()
    (tmp_path / "rank-1.json").write_text(json.dumps(asdict(other)))
    assert not is_alive(other)
    found = [each for each in silent(beats(tmp_path), time.monotonic(), 1.0) if each == other]
    assert found == [other]
    assert [each for each in heartbeat.kill_silent(tmp_path, 1.0) if each == other] == []
