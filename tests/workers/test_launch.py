"""How workers are started, and in which environment."""

import os
from pathlib import Path

import pytest

import pv
from pv.workers import launch, tree
from tests.commands.small import Project


def test_workers_have_one_thread_their_mark_and_pv_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/first{os.pathsep}")
    monkeypatch.setattr(launch, "PACKAGE_HOME", Path("/source"))
    made = launch.environment("abc")
    assert (made["OMP_NUM_THREADS"], made["PV_POOL"]) == ("1", "abc")
    assert made["PYTHONPATH"] == f"/first{os.pathsep}/source"
    monkeypatch.setattr(launch, "PACKAGE_HOME", Path("/lib/site-packages"))
    assert launch.environment("")["PYTHONPATH"] == "/first"


def test_tasks_are_spawned_with_a_note_where_the_fork_server_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "supported", lambda: False)
    made = launch.launcher([], tmp_path)
    assert isinstance(made, launch.SpawnLauncher)
    assert made.note == "tasks are spawned: this system has no subreapers or no /proc"


def test_reaping_a_process_that_is_no_child_is_ignored() -> None:
    assert launch.reap(os.getpid()) is None


def test_spawned_workers_say_the_same(project: Project) -> None:
    project("small")
    report = pv.validate(spawn=True, only=["C-LIMIT", "C-COMMAND"])
    assert report.exit_code == 0
    assert report.contracts[0].killed == {"limit-ignored", "limit-forgotten", "epoch-lost"}
    assert report.notes == ("tasks are spawned, as asked",)
