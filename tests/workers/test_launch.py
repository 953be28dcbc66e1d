"""How workers are started: from which servers, where servers cannot run, and with which suites."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pv
from pv.workers import forking, tree
from pv.workers.live import Task
from pv.workers.pools import Pools
from pv.workers.spawning import SpawnLauncher
from pv.workers.tasks import Body
from tests.support.projects import Project


def test_tasks_are_spawned_where_the_fork_server_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "supported", lambda: False)
    made = forking.launcher([], tmp_path).ready()
    assert isinstance(made, SpawnLauncher)
    assert made.note == "tasks are spawned: this system has no subreapers or no /proc"


def test_spawned_workers_say_the_same(project: Project) -> None:
    project("small")
    report = pv.validate(spawn=True, only=["C-LIMIT", "C-COMMAND"])
    assert report.exit_code == 0
    assert report.contracts[0].killed == {"limit-ignored", "limit-forgotten", "epoch-lost"}
    assert report.notes == ("tasks are spawned, as requested",)


def test_the_same_modules_share_a_server_and_others_get_their_own(marked: Callable[[], list[int]]) -> None:
    with Pools(1) as pools:
        for preload, servers in ((["json"], 1), (["json"], 1), (["csv"], 2)):
            with pools.pool(preload) as pool:
                body = Body(kind="device", root=".", roots=(), device="cuda")
                pool.submit(Task(key="", body=body, limit_s=60, memory_mib=4096))  # which starts its fork server
                ((_, reply),) = pool.replies()
            assert reply.last("end") is not None
            assert len(marked()) == servers, f"after {preload}"
    assert marked() == []


SCRIPT = """
from pv.workers.worker import _prefer_suites
_prefer_suites([{root!r}])
import pv.suites.mine
print(pv.suites.mine.__file__)
"""


def test_suites_of_a_root_come_before_those_that_are_installed(tmp_path: Path) -> None:
    folder = tmp_path / "pv" / "suites"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("")
    script = SCRIPT.format(root=str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == str(folder / "mine.py"), ended.stderr
