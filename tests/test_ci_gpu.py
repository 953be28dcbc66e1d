"""`.ci/gpu` on a machine without a GPU: it rehearses every step on one claim."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def recorded() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (ROOT / "evidence").iterdir()}


def test_rehearsal_runs_every_step_and_records_nothing_in_the_project() -> None:
    before = recorded()
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    command = [str(ROOT / ".ci/gpu"), "--rehearse", "--only", "F-KD-EQUATION-001"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line.split(" (")[0] for line in done.stdout.splitlines() if line.startswith("== ")]
    assert steps == ["== packages", "== device", "== dry run for cuda", "== claims", "== evidence"]
    assert "1 task for cuda in 1 contract, none was run; exit 0" in done.stdout
    assert "falsifiers 1/1" in done.stdout and "results written and read back" in done.stdout
    assert recorded() == before
