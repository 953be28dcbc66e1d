"""SIGINT, SIGTERM, SIGHUP and SIGKILL at moments from the start of the process to its end."""

import json
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from falsifiers.support.run_lines import ATTACHED, STEP, start
from reference_trainer.storage.checkpoints import read_checkpoint
from tests.reference_trainer.forked import Process, is_complete

STEP_10, STEP_20 = (start(STEP, step=step) for step in (10, 20))
WHOLE = ["checkpoints", "config.json", "manifest.json", "metrics.jsonl", "model.safetensors"]
SAVED = (["checkpoints"], ["checkpoints", "metrics.jsonl"])
"""What a run leaves that was interrupted in its training; no line may have been logged yet."""
AFTER_S = (0.4,)
"""Since the process handles signals itself; before, Python does."""
AT_LINE = ("teacher: training", start(ATTACHED), STEP_20, "held-back kl_at_1", "wrote")
INTERRUPTED = [(130, "error: interrupted"), (130, "error: interrupted; no model was written")]
AT_FILE = (".model.safetensors", ".manifest.json")
# Enough weights to send a signal during the export, and a logged step: a run without one has no metrics file.
BIG = ("--width", "512", "--max-steps", "1", "--log-every", "1", "--save-every", "0")


NUMBERS = (
    (signal.SIGINT, signal.SIGINT),
    (signal.SIGTERM,),
    (signal.SIGHUP,),
    (signal.SIGUSR1,),
    (signal.SIGXCPU,) * 2,
)


def reach(process: "subprocess.Popen[str] | Process", seen: list[str], moment: float | str, out: Path) -> None:
    """Wait for seconds, a line, the prefix of a temporary file's name, or the end of the process."""
    while isinstance(moment, float) and not handles_signals(process.pid) and process.poll() is None:
        time.sleep(0.0005)
    if isinstance(moment, float):
        time.sleep(moment)
        return
    while process.poll() is None:
        if moment in AT_FILE and out.is_dir() and any(path.name.startswith(moment) for path in out.iterdir()):
            return
        if moment not in AT_FILE and any(line.startswith(moment) for line in seen):
            return
        time.sleep(0.0005)


def handles_signals(pid: int) -> bool:
    """Return whether the process has a handler of SIGHUP, for which Python has none."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(fields["SigCgt"], 16) >> (signal.SIGHUP - 1) & 1)


def hit(trainer, moment: float | str, *numbers: int, arguments: tuple[str, ...] = ()) -> tuple[int, str]:
    """Return exit code and standard error of a run that received these signals at that moment."""
    start = trainer.start if isinstance(moment, float) else trainer.fork  # the start of an interpreter counts for times
    process = start("--out", "new/out", "--trace", "trace", *arguments)
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.extend(iter(process.stdout.readline, "")))
    reader.start()
    reach(process, seen, moment, trainer.folder / "new" / "out")
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.01)
    complaints = process.stderr.read()
    reader.join()
    return process.wait(), complaints


def assert_nothing_half(folder: Path) -> None:
    assert list(folder.rglob("*.partial")) == []
    if (folder / "new").exists():
        left = sorted(path.name for path in (folder / "new" / "out").iterdir())
        assert left in (WHOLE, WHOLE[1:], ["metrics.jsonl"], *SAVED)
        is_complete(folder / "new" / "out")
        for path in (folder / "new" / "out").glob("checkpoints/student-step*"):
            read_checkpoint(path)
    if (folder / "trace").exists():
        events = [json.loads(line)["event"] for line in (folder / "trace").read_text().splitlines()]
        # An interrupt in the first hook of the first callback ends the run before the trace receives its first event.
        assert events[0] == "on_train_begin" or events == ["on_train_end"]
        assert events.count("on_train_end") == 1 and events[-1] == "on_train_end"


@pytest.mark.parametrize(
    ("moment", "numbers"),
    [
        (moment, numbers)
        for k, moment in enumerate((*AFTER_S, *AT_LINE, *AT_FILE))
        for numbers in [NUMBERS[k % len(NUMBERS)]]
    ],
    ids=str,
)
def test_interrupt_leaves_no_partial_file(trainer, moment: float | str, numbers: tuple[int, ...]) -> None:
    folder = trainer.folder
    code, complaints = hit(trainer, moment, *numbers, arguments=BIG if moment in AT_FILE else ())
    assert_nothing_half(folder)
    if code == 0:
        assert complaints == "" and (folder / "new").exists()
    else:
        (line,) = complaints.splitlines()
        saved = bool(list(folder.glob("new/out/checkpoints/student-step*")))
        expected = [(75, "stopped on request")] * saved
        if not saved or moment in AT_LINE[2:]:  # where the training may be over
            expected += INTERRUPTED
        assert (code, line.split(" (")[0]) in expected, line
        assert (folder / "trace").exists() or moment not in AT_LINE[2:] + AT_FILE
