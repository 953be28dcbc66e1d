"""Attacks on `counting`, as an author would write them."""

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

small = st.integers(1, 50)


@given(epochs=small, steps=small, limit=st.integers(1, 3000))
def falsify_limit(subject, epochs, steps, limit):
    assert subject.total(epochs, steps, limit) == sorted([limit, epochs * steps])[0], "not the smaller of the two"


@given(epochs=small, steps=small)
def falsify_whole(subject, device, epochs, steps):
    assert device in ("cpu", "cuda")
    assert subject.total(epochs, steps) == sum(steps for _ in range(epochs))


def falsify_command(subject):
    command = [sys.executable, "-m", subject.__name__, "3", "4"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == "12\n", said.stdout


def count_up(subject, *, device, directory, trace, epochs, steps):
    with Path(__file__).with_name(".executions.log").open("a") as log:
        log.write(f"{epochs}x{steps} on {device}\n")
    counted = subject.count(epochs, steps)
    for step in counted:
        trace({"step": step})
    (directory / "last.txt").write_text(str(counted[-1]))
    return {"counted": len(counted)}


def falsify_run_counts_all(run):
    assert run.result["counted"] == run.arguments["epochs"] * run.arguments["steps"]
    assert (run.directory / "last.txt").read_text() == str(run.result["counted"])


def falsify_run_starts_at_one(run):
    assert [event["step"] for event in run.trace][0] == 1
