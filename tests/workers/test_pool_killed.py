"""No process and no file is left after the parent is killed, or after Ctrl-C."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pv.workers import tree
from tests.support.processes import wait_for
from tests.support.projects import Project

Marked = Callable[[], list[int]]
Start = Callable[..., subprocess.Popen[str]]


def steady(condition: Callable[[], object], seconds: float = 3.0) -> Callable[[], bool]:
    """Return a condition that holds once `condition` has held continuously for some seconds."""
    since: float | None = None

    def held() -> bool:
        nonlocal since
        since = (since or time.monotonic()) if condition() else None
        return since is not None and time.monotonic() - since > seconds

    return held


@pytest.fixture
def validation(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Return a function that starts `pv validate` in the hostile project, and waits until a falsifier hangs."""
    folder = project("hostile")
    contract = folder / "contracts" / "odd.yaml"
    contract.write_text(re.sub(r"limit: \d+", "limit: 600", contract.read_text()))
    sign = tmp_path / "sign"
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("HOSTILE_SIGN", str(sign))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))

    def start(*only: str, jobs: int = 2) -> subprocess.Popen[str]:
        selection = [part for name in ("daemons-then-hang", *only) for part in ("--only", name)]
        process = subprocess.Popen(
            [sys.executable, "-m", "pv", "validate", "--jobs", str(jobs), *selection],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(sign.exists, "the falsifier to hang")
        return process

    return start


def server_of(pid: int) -> int:
    (server,) = tree.children(pid)
    return server


def test_killed_parent_leaves_no_process_and_no_file(validation: Start, marked: Marked, tmp_path: Path) -> None:
    process = validation()
    process.kill()
    process.communicate()
    wait_for(lambda: not marked(), "all processes to end")
    wait_for(lambda: not list((tmp_path / "temporary").iterdir()), "the temporary files to go")


def test_ctrl_c_prints_finished_results_and_leaves_nothing(validation: Start, marked: Marked, tmp_path: Path) -> None:
    process = validation("good-first")
    wait_for(steady(lambda: len(tree.children(server_of(process.pid))) == 1), "only the task that hangs to run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)  # the limit of the task is 600 s
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "  falsifiers 1/2" in out
    assert "UNDECIDED  interrupted: 1 claim of 1 contract not run (-v lists them)\n" in out
    assert marked() == []
    assert list((tmp_path / "temporary").iterdir()) == []
