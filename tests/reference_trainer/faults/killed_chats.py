"""Kill a supervised distillation of Hugging Face models on two ranks again and again, and compare its end:

    python -m tests.reference_trainer.faults.killed_chats [KILLS [SEED]]

SIGKILL hits a rank or the supervisor, which is then started again, at random times. At the end the exported weights
equal the weights of a run without kills, bit for bit, and every step is logged once.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reference_trainer import read_metrics
from reference_trainer.storage.files import file_digest
from reference_trainer.supervision.heartbeat import beats
from tests.reference_trainer.huggingface.small_models import with_models

STEPS = 300
COMMAND = ["-m", "reference_trainer", "until", "--step", str(STEPS), "--nproc-per-node", "2", "--max-retries", "99"]
COMMAND += ["--max-idle", "99", "--", "distill", "--teacher", "teacher", "--student", "student", "--data"]
COMMAND += ["chats.jsonl", "--length", "48", "--documents", "pack", "--batch-size", "2", "--epochs", "200"]
COMMAND += ["--warmup", "5", "--log-every", "1", "--save-every", "10", "--keep", "2", "--device", "cpu", "--out"]


def start(place: Path, out: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "XDG_CACHE_HOME": str(place)}
    return subprocess.Popen([sys.executable, *COMMAND, out], cwd=place, env=environment)


def kill(place: Path, out: str, process: "subprocess.Popen[bytes]", after: int, draw: random.Random) -> int:
    """Kill the supervisor or a rank once both ranks are beyond a step, and a random time later; return the step."""
    ranks = beats(place / f"{out}.until")
    while len(ranks) < 2 or min(rank.step for rank in ranks) <= after:
        assert process.poll() is None, f"the run ended before it was killed beyond step {after}"
        time.sleep(0.01)
        ranks = beats(place / f"{out}.until")
    time.sleep(draw.uniform(0, 0.5))
    step = max(rank.step for rank in beats(place / f"{out}.until"))
    victim = draw.choice([process.pid, *(rank.pid for rank in ranks)])
    print(f"killing {'the supervisor' if victim == process.pid else 'a rank'} near step {step}", flush=True)
    os.kill(victim, signal.SIGKILL)
    return step


def killed(place: Path, out: str, kills: int, draw: random.Random) -> None:
    """Run until the end, with `kills` kills."""
    process, step = start(place, out), 0
    for _ in range(kills):
        step = kill(place, out, process, step + draw.randrange(STEPS // (2 * kills)), draw)
        time.sleep(1)
        if process.poll() is not None:
            process = start(place, out)
    assert process.wait() == 0, f"the supervisor ended with {process.returncode}"


def check(place: Path, out: str, straight: str) -> None:
    assert [line.step for line in read_metrics(place / out / "metrics.jsonl")] == list(range(1, STEPS + 1))
    digests = [file_digest(place / name / "model.safetensors") for name in (out, straight)]
    assert digests[0] == digests[1], digests
    print(f"weights {digests[0][:12]} twice")


def main(kills: int = 5, seed: int = 0) -> None:
    place = with_models(Path(tempfile.mkdtemp()))
    try:
        killed(place, "straight", 0, random.Random(seed))
        killed(place, "out", kills, random.Random(seed))
        check(place, "out", "straight")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
