"""The messages of the fork server."""

import gc
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pv.workers import server, tree
from pv.workers.server import Server


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Server, socket.socket]]:
    """A server in this process, and the socket of its client."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield Server(theirs, str(tmp_path)), ours


def test_kill_request_kills_the_worker_of_that_task_alone(
    ends: tuple[Server, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, client = ends
    made.tasks = {11: "a", 12: "b"}
    killed: list[int] = []
    monkeypatch.setattr(tree, "kill_all", lambda pids: killed.extend(pids))
    client.send(json.dumps({"kill": "b"}).encode())
    made._receive()
    assert killed == [12]
    assert made.tasks == {11: "a", 12: "b"}


def test_server_ends_when_its_client_closes_the_socket(
    ends: tuple[Server, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, client = ends

    def leave() -> None:
        raise SystemExit(0)

    monkeypatch.setattr(made, "_leave", leave)
    client.close()
    with pytest.raises(SystemExit):
        made._receive()


def test_module_that_cannot_be_imported_does_not_stop_the_preload(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str) -> None:
        loaded.append(name)
        raise RuntimeError(name)

    monkeypatch.setattr(server, "importlib", SimpleNamespace(import_module=load))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    server.preload(["broken", "other"])
    assert loaded == ["broken", "other"]


def test_name_in_a_module_is_looked_up_for_packages_that_import_their_parts_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_package").mkdir()
    code = "import importlib\ndef __getattr__(name):\n    return importlib.import_module('late_package.part')\n"
    (tmp_path / "late_package" / "__init__.py").write_text(code)
    (tmp_path / "late_package" / "part.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    server.preload(["late_package", "late_package.Name"])
    assert "late_package.part" in sys.modules
