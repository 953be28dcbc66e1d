"""Heartbeats of processes whose number another process has now; `test_until` kills and stops real ones."""

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path

from reference_trainer.supervision.heartbeat import Heart, beats, is_alive, kill_silent, silent


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
    assert [each for each in kill_silent(tmp_path, 1.0) if each == other] == []
