"""Supervised runs of real processes that are killed, stopped, interrupted and hang."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from reference_trainer import read_metrics
from reference_trainer.supervision.decision import Ending
from reference_trainer.supervision.heartbeat import Beat, is_alive
from tests.reference_trainer.conftest import Trainer
from tests.reference_trainer.forked import Process, command
from tests.support.processes import wait_for

RUN = ("--", "distill", "--epochs", "4000", "--log-every", "1", "--save-every", "5", "--keep", "2", "--warmup", "5",
       "--callbacks", "holding.toml")  # fmt: skip
HOLDING = """
import os
import time
from pathlib import Path
from reference_trainer import Callback

class Holding(Callback):
    def on_optimizer_step(self, context):
        hold = Path(f"hold-{context.step}")
        if hold.exists() and os.environ.get("RANK", "0") == "0":
            Path("partial").write_text(str(os.getpid()))
            Path("partial").replace(f"held-{context.step}")
            while hold.exists():
                time.sleep(0.01)
"""
"""Holds rank 0 at a step while the file `hold-STEP` exists, so that a test cannot miss the step; `held-STEP` has its
process."""


def write_holding(trainer: Trainer) -> None:
    if (trainer.folder / "holding.toml").exists():  # a rank may read them
        return
    (trainer.folder / "holding.py").write_text(HOLDING)
    (trainer.folder / "holding.toml").write_text('[[callbacks]]\nuse = "holding:Holding"\n')


@contextmanager
def held(trainer: Trainer, step: int) -> Iterator[int]:
    """Yield the process of rank 0, which waits at a step to the end of the block; `hold-STEP` exists before the run."""
    path = trainer.folder / f"held-{step}"
    wait_for(path.exists, f"rank 0 to come to step {step}")
    yield int(path.read_text())
    (trainer.folder / f"hold-{step}").unlink()


def started(trainer: Trainer, *options: str) -> Process:
    """Start a supervisor in a fork of this process."""
    write_holding(trainer)
    return Process(["until", *options, *RUN, "--out", "out"], trainer.folder, trainer.environment)


def ended(process: Process) -> tuple[int | None, str, str]:
    output, complaints = process.stdout.read(), process.stderr.read()
    return process.wait(), output, complaints


def beat(trainer: Trainer, ready: Callable[[Beat], bool]) -> Beat:
    """Return the beat of the rank once it is `ready`."""
    path = trainer.folder / "out.until" / "rank-0.json"
    seen: list[Beat] = []

    def is_ready() -> bool:
        with suppress(OSError, ValueError):
            seen[:] = [Beat(**json.loads(path.read_text()))]
            return ready(seen[0])
        return False

    wait_for(is_ready, "such a heartbeat of the rank")
    return seen[0]


def steps(trainer: Trainer) -> list[int]:
    return [line.step for line in read_metrics(trainer.folder / "out/metrics.jsonl")]


def wait_for_end(rank: Beat) -> None:
    wait_for(lambda: not is_alive(rank), "the rank to end")


@pytest.mark.usefixtures("forked_ranks")
def test_run_that_is_killed_and_stopped_ends_like_the_straight_one(trainer: Trainer) -> None:
    endings = {8: signal.SIGKILL, 18: signal.SIGSTOP}
    for step in endings:
        (trainer.folder / f"hold-{step}").touch()
    process = started(trainer, "--step", "30")
    for step, number in endings.items():
        with held(trainer, step) as rank:
            os.kill(rank, number)
    code, output, complaints = ended(process)
    assert code == 0, complaints
    assert "rank 0 ended with signal SIGKILL" in output
    assert "silent" in output
    assert "attempt 3: the run came to its end; step 30 of 30 is reached" in output
    assert steps(trainer) == list(range(1, 31))
    straight = trainer.run("--out", "straight", *RUN[2:], "--max-steps", "30")
    assert straight.returncode == 0, straight.stderr
    models = [(trainer.folder / name / "model.safetensors").read_bytes() for name in ("out", "straight")]
    assert models[0] == models[1]
    assert not (trainer.folder / "out.until").exists()
    code, output, _ = ended(started(trainer, "--step", "30"))
    assert (code, output) == (0, "done: step 30 is reached\n")


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_of_a_killed_supervisor_are_killed_and_those_of_an_interrupted_one_save(trainer: Trainer) -> None:
    process = started(trainer, "--step", "100000")
    first = beat(trainer, lambda read: read.step > 3)
    process.send_signal(signal.SIGKILL)
    ended(process)
    wait_for_end(first)
    process = started(trainer, "--step", "100000")  # the files of the killed run are accepted
    later = beat(trainer, lambda read: read.step > first.step and read.pid != first.pid)
    other = ended(started(trainer, "--step", "100000"))
    assert other[0] == 1 and "another supervisor" in other[2]
    process.send_signal(signal.SIGTERM)
    code, _, complaints = ended(process)
    assert code == 75
    assert "run the same command again to continue" in complaints
    wait_for_end(later)
    checkpoints = trainer.folder.glob("out/checkpoints/student-step*")
    assert max(int(path.name.removeprefix("student-step")) for path in checkpoints) == steps(trainer)[-1]


@pytest.mark.parametrize(
    ("ending", "options", "attempts", "code"),
    [
        (Ending.FAILED, [], 3, 3),
        (Ending.FAILED, ["--nproc-per-node", "5", "--max-idle", "99"], 11, 4),
        (Ending.FAILED, ["--max-retries", "1"], 2, 4),
        (Ending.REFUSED, [], 1, 2),
        (Ending.FINISHED, [], 1, 5),
    ],
)
def test_exit_code_tells_lack_of_progress_retries_refusal_and_an_early_end_apart(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, ending: Ending, options: list[str], attempts: int, code: int
) -> None:
    def run_attempt(command: object, beats: object, *, ranks: int, name: str) -> tuple[Ending, str]:
        return ending, f"{ranks} ranks ended"

    monkeypatch.setattr("reference_trainer.supervision.until.run_attempt", run_attempt)
    exit_code, output, _ = ended(started(trainer, "--step", "20", *options))
    assert (exit_code, output.count(f"{5 if '5' in options else 1} ranks ended")) == (code, attempts)


REFUSED = {
    ("--", "distill", "--smoke", "3", "--save-every", "0"): ["--smoke saves", "--save-every is 0"],
    ("--step", "9", "--", "distill", "--max-steps", "3", "--resume", "best"): [
        "--max-steps is --step here",
        "--resume is automatic",
        "--save-every is 5000, so no step before 9 is saved",
    ],
    ("--step", "9", "--", "distill", "--seed", "x"): ["invalid value 'x' for --seed"],
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_everything_that_is_missing_is_named_at_once(trainer: Trainer, arguments: tuple[str, ...]) -> None:
    done = command(["until", *arguments], trainer.folder, trainer.environment)
    assert done.returncode == 2, done.stderr
    assert [part for part in REFUSED[arguments] if part not in done.stderr] == []
    assert sorted(path.name for path in trainer.folder.iterdir()) == ["text"]


FAILING = """
from reference_trainer import Callback

class Failing(Callback):
    def on_optimizer_step(self, context):
        if context.step == 7:
            raise ValueError("seven")
"""
ERRORS = {
    "row": (2, 1, "not tried again: the input was refused, before its first step: DataError: ", "rows.jsonl"),
    "callback": (3, 2, "not tried again: two attempts ended with the same error, after step 6: ValueError: ", "seven"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_error_that_stays_is_not_tried_again_and_is_named(trainer: Trainer, error: str) -> None:
    write_holding(trainer)
    (trainer.folder / "failing.py").write_text(FAILING)
    (trainer.folder / "callbacks.toml").write_text('[[callbacks]]\nuse = "failing:Failing"\n')
    options = {"row": ("--data", "rows.jsonl"), "callback": ("--callbacks", "callbacks.toml")}[error]
    command = ["until", "--step", "20", *RUN, "--out", "out", *options]
    exit_code, output, _ = ended(Process(command, trainer.folder, trainer.environment))
    code, attempts, message, name = ERRORS[error]
    last = output.splitlines()[-1]
    assert (exit_code, output.count("ended with exit code")) == (code, attempts), output
    assert message in last and name in last and last.endswith("run the same command again")
    assert not (trainer.folder / "out.until").exists()
