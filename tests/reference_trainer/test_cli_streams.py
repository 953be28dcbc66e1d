"""Output streams of `reference-trainer`: a terminal, a closed pipe, a full disk, no stream."""

import json
import os
import pty
import re
import select
import signal
import termios
from pathlib import Path

import jsonschema
import pytest

from falsifiers.support.run_lines import ATTACHED, EPOCH, FIRST_STEP, METRICS_LINE, STEP, matcher
from falsifiers.support.run_lines import start as line_start
from reference_trainer.__main__ import run
from tests.reference_trainer.forked import command, on_terminal
from tests.support.processes import python

WHOLE = ["checkpoints", "config.json", "manifest.json", "metrics.jsonl", "model.safetensors"]
LOST = "standard output failed ({}); the run continues without log lines\n"
METRICS = re.escape(line_start(METRICS_LINE)) + (
    "loss=[0-9.]+ hard_loss=[0-9.]+ soft_loss=[0-9.]+ kl_at_1=[0-9.]+ .*perplexity=[0-9.]+"
)
LINES = [
    r"teacher: training a teacher for 3 steps on the same text \(use --teacher PATH for your own\)",
    "teacher: " + matcher(FIRST_STEP, left=2).pattern,
    r"teacher: cached in cache/teacher-[0-9a-f]{24}",
    matcher(ATTACHED, every=10).pattern,
    matcher(FIRST_STEP, left=26).pattern,
    matcher(STEP, step=10, total=27).pattern,
    METRICS,
    matcher(STEP, step=20, total=27).pattern,
    METRICS,
    matcher(EPOCH, epoch=1, epochs=1).pattern,
    r"27 steps in \d+\.\ds \([0-9.]+ step/s, [0-9,]+ bytes/s\): distillation loss \d\.\d{4} to \d\.\d{4}",
    *(rf"held-back {name}: \d\.\d{{4}} nats per byte over \d+ bytes" for name in ("hard_loss", "soft_loss")),
    *(rf"held-back {name}: \d\.\d{{4}} nats per byte over \d+ bytes" for name in ("kl_at_T", "kl_at_1")),
    *(rf"held-back teacher_{name}: \d\.\d{{4}} nats per byte over \d+ bytes" for name in ("loss", "entropy")),
    *(rf"held-back {name}: \d\.\d{{4}} over \d+ bytes" for name in ("agreement", "token_accuracy")),
    *(rf"held-back {name}_perplexity: \d+\.\d{{4}}" for name in ("student", "teacher")),
    r"wrote out",
]


def assert_lines(lines: list[str]) -> None:
    assert len(lines) == len(LINES), lines
    for line, expected in zip(lines, LINES, strict=True):
        assert re.fullmatch(expected, line), line


def test_pipe_receives_the_documented_lines_and_trace_matches_its_schema(trainer) -> None:
    done = trainer.run("--trace", "trace")
    assert (done.returncode, done.stderr) == (0, "")
    assert_lines(done.stdout.splitlines())
    checker = jsonschema.Draft202012Validator(json.loads(python("-m", "reference_trainer", "schema").stdout))
    checker.check_schema(checker.schema)
    events = [json.loads(line) for line in (trainer.folder / "trace").read_text().splitlines()]
    assert len(events) == 27 + 4
    for event in events:
        checker.validate(event)


def test_closed_pipe_does_not_end_the_run(trainer) -> None:
    read, write = os.pipe()
    os.close(read)

    def start() -> None:
        os.dup2(write, 1)
        run()

    done = command(["distill"], trainer.folder, trainer.environment, start)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, LOST.format("[Errno 32] Broken pipe"))
    assert trainer.left() == WHOLE


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_command_that_only_prints_fails_on_a_full_disk(unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = python("-m", "reference_trainer", "schema", out=full, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, "error: cannot write to standard output: No space left on device\n")


def on_a_terminal(trainer, *arguments: str, interrupt_at: str = "") -> tuple[int, str]:
    """Return the exit code and the output on a terminal; Ctrl-C is sent once `interrupt_at` appears."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    pid = on_terminal(["distill", *arguments], trainer.folder, trainer.environment, theirs)
    os.close(theirs)
    seen = ""
    while select.select([ours], [], [], 600)[0]:
        try:
            seen += os.read(ours, 65536).decode()
        except OSError:  # the last process has closed the terminal
            break
        if interrupt_at and interrupt_at in seen:
            os.killpg(pid, signal.SIGINT)
            interrupt_at = ""
    os.close(ours)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


def readable(seen: str) -> list[str]:
    """Return the final lines of the screen, for the codes that rich uses: up, erase a line, back to its start."""
    screen, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", seen):
        if part == "\n":
            row += 1
            screen += [""] * (row == len(screen))
        elif up := re.fullmatch(r"\x1b\[(\d*)A", part):
            row -= int(up[1] or 1)
        elif part == "\x1b[2K":
            screen[row] = ""
        elif part == "\r" or part.startswith("\x1b"):
            continue
        else:
            screen[row] += part
    return [line.rstrip() for line in screen if line.strip()]


def assert_cursor_is_visible(seen: str) -> None:
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") > 0
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")


def test_terminal_shows_a_bar_below_whole_lines(trainer) -> None:
    trainer.environment["TERM"] = "xterm"
    code, seen = on_a_terminal(trainer)
    assert code == 0, seen
    assert "student" in seen and "teacher" in seen and "━" in seen
    assert_lines(readable(seen))
    assert_cursor_is_visible(seen)


@pytest.mark.parametrize("ending", ["ctrl-c", "error"])
def test_terminal_is_restored_after_the_run(trainer, ending: str) -> None:
    trainer.environment["TERM"] = "xterm"
    if ending == "ctrl-c":
        code, seen = on_a_terminal(trainer, "--epochs", "1000", interrupt_at=line_start(STEP, step=20).strip())
        assert code == 75, seen
        assert re.fullmatch(
            r"stopped on request \(after \d+ of 27000 steps, in epoch \d+\); "
            r"a checkpoint was saved: go on with --resume latest",
            readable(seen)[-1],
        )
    else:
        code, seen = on_a_terminal(trainer, "--epochs", "100", "--lr", "1e6", "--dtype", "float64")
        assert code == 1, seen
        assert readable(seen)[-1].startswith("error: "), seen
    assert_cursor_is_visible(seen)
    assert "Traceback" not in seen
