"""Kill and stop ranks of a supervised run of several processes at random times, and check its end.

    python -m tests.reference_trainer.faults.ranks [RANKS] [FAULTS] [STRATEGY]

The weights and metrics.jsonl are those of the run without a fault.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reference_trainer.supervision.heartbeat import beats, is_alive
from tests.reference_trainer.faults.runs import digest, lines

STEPS = 400
FLAGS = (
    "--layers 1 --width 16 --teacher-layers 1 --teacher-width 16 --teacher-steps 3 --length 16 --batch-size 4 "
    "--accumulate 2 --epochs 400 --log-every 1 --save-every 10 --keep 2 --device cpu --data text --teacher-cache cache"
).split()


def started(folder: Path, out: str, ranks: int, strategy: str) -> "subprocess.Popen[str]":
    supervisor = ["--step", str(STEPS), "--max-retries", "99", "--max-idle", "9", "--nproc-per-node", str(ranks)]
    more = ["--out", out, *(["--strategy", strategy] if ranks > 1 else [])]
    command = [sys.executable, "-m", "reference_trainer", "until", *supervisor, "--", "distill", *FLAGS, *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> list[str]:
    """Return what a supervisor says of its attempts."""
    said = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"the supervisor ends with {process.returncode}:\n{said}")
    return [line for line in said.splitlines() if line.startswith(("attempt", "killed process"))]


def harmed(process: "subprocess.Popen[str]", beside: Path, ranks: int, faults: int) -> list[str]:
    """Kill or stop a rank at random times after its first step, and return what was done."""
    numbers, done, hit = random.Random(ranks), list[str](), set[int]()
    while len(done) < faults and process.poll() is None:
        alive = [beat for beat in beats(beside) if is_alive(beat) and beat.step and beat.pid not in hit]
        if len(alive) < ranks:
            time.sleep(0.05)
            continue
        time.sleep(numbers.uniform(0.0, 1.5))
        chosen, number = numbers.choice(alive), numbers.choice((signal.SIGKILL, signal.SIGSTOP))
        if is_alive(chosen):
            os.kill(chosen.pid, number)
            hit |= {beat.pid for beat in alive}
            done.append(f"{number.name} after step {chosen.step}")
    return done


def main() -> None:
    ranks, faults = (int(each) for each in (*sys.argv[1:3], "2", "6")[:2]) if len(sys.argv) > 2 else (2, 6)
    strategy = sys.argv[3] if len(sys.argv) > 3 else "ddp"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "text").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 40)
        ended(started(folder, "straight", ranks, strategy))
        process = started(folder, "cut", ranks, strategy)
        done = harmed(process, folder / "cut.until", ranks, faults)
        said = ended(process)
        print("\n".join(said))
        straight, cut = folder / "straight", folder / "cut"
        equal = digest(straight) == digest(cut), lines(straight) == lines(cut)
        print(f"{ranks} ranks, {strategy}: {len(done)} faults ({', '.join(done)}); weights and metrics equal: {equal}")
        sys.exit(not all(equal) or len(done) < faults)


if __name__ == "__main__":
    main()
