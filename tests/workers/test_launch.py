"""How workers are started, and in which environment."""

from pathlib import Path

import pytest

import pv
from pv.workers import launch, tree
from tests.commands.small import Project


def test_tasks_are_spawned_with_a_note_where_the_fork_server_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "supported", lambda: False)
    made = launch.launcher([], tmp_path)
    assert isinstance(made, launch.SpawnLauncher)
    assert made.note == "tasks are spawned: this system has no subreapers or no /proc"


def test_spawned_workers_say_the_same(project: Project) -> None:
    project("small")
    report = pv.validate(spawn=True, only=["C-LIMIT", "C-COMMAND"])
    assert report.exit_code == 0
    assert report.contracts[0].killed == {"limit-ignored", "limit-forgotten", "epoch-lost"}
    assert report.notes == ("tasks are spawned, as asked",)
