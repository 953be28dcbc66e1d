"""Starts workers, by the fork server (12 ms each) or in a new interpreter (about a second each)."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pv.errors import WorkerLost
from pv.results.reuse.environment import inherited
from pv.workers import tree

START_LIMIT_S = 120.0
MARK = "PV_POOL"
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow's allocator, which Hugging Face's datasets load
}
PACKAGE_HOME = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Started:
    task: str
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    task: str
    status: int
    """As from os.wait: see os.WIFSIGNALED and os.WEXITSTATUS."""


class Launcher(Protocol):
    """Starts one process per task, reports its start and end, and kills it with all its descendants."""

    note: str
    """The note to the user on how tasks are started, or ""."""

    @property
    def loading(self) -> bool:
        """Whether `ready` would wait."""
        ...

    def ready(self) -> "Launcher":
        """Return what starts the tasks, once it can. Raise WorkerLost if it never can."""
        ...

    def start(self, task: dict[str, Any], evidence_fd: int, output_fd: int) -> None: ...
    def fileno(self) -> int | None: ...
    def events(self) -> list[Started | Ended]: ...
    def kill(self, task: str) -> None: ...
    def close(self) -> None: ...


def launcher(preload: list[str], work: Path, *, spawn: bool = False) -> Launcher:
    """Return a new fork server, which loads its libraries, if the kernel supports it; else a spawning launcher."""
    if spawn:
        return SpawnLauncher(work, "tasks are spawned, as requested")
    if not tree.supported():
        return SpawnLauncher(work, "tasks are spawned: this system has no subreapers or no /proc")
    return ForkLauncher(preload, work)


def environment(mark: str) -> dict[str, str]:
    """Return the environment of every worker: one thread, and `pv` on the path where it is not installed."""
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if PACKAGE_HOME.name not in ("site-packages", "dist-packages"):
        entries.append(str(PACKAGE_HOME))
    return {**inherited(os.environ), **ONE_THREAD, MARK: mark, "PYTHONPATH": os.pathsep.join(entries)}


class ForkLauncher:
    """A client of one fork server. Its methods raise WorkerLost once the server is dead."""

    note = ""

    def __init__(self, preload: list[str], work: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.preload, self.work = preload, work
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        tree.become_subreaper()
        config = json.dumps({"preload": preload, "work": str(work)})
        self.log = work / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pv.workers.server", str(theirs.fileno()), config],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.mark),
                start_new_session=True,
            )
        theirs.close()
        self.socket = ours
        self.loaded = False

    @property
    def loading(self) -> bool:
        return not self.loaded and not select.select([self.socket], [], [], 0)[0]

    def ready(self) -> Launcher:
        """Return itself, or a spawning launcher if its libraries started threads, which no fork would have."""
        others = self._report()["threads"] - 1
        if not others:
            return self
        self.close()
        self.work.mkdir(exist_ok=True)
        note = f"tasks are spawned: loading {', '.join(self.preload)} started {others} threads"
        return SpawnLauncher(self.work, note)

    def _report(self) -> dict[str, Any]:
        """Wait for what the server reports once its libraries are loaded. Raise WorkerLost."""
        self.socket.settimeout(START_LIMIT_S)
        try:
            message = self.socket.recv(1 << 16)
        except TimeoutError:
            message = b""
        if not message:
            output = self.log.read_text(encoding="utf-8", errors="replace").strip() if self.log.exists() else ""
            self.close()
            raise WorkerLost(f"the fork server did not start; its output:\n{output[-4000:]}")
        self.socket.setblocking(False)
        self.loaded = True
        ready: dict[str, Any] = json.loads(message)["ready"]
        return ready

    def start(self, task: dict[str, Any], evidence_fd: int, output_fd: int) -> None:
        self._send(json.dumps(task).encode(), [evidence_fd, output_fd])

    def kill(self, task: str) -> None:
        self._send(json.dumps({"kill": task}).encode(), [])

    def _send(self, data: bytes, fds: list[int]) -> None:
        try:
            self.socket.setblocking(True)
            socket.send_fds(self.socket, [data], fds)
            self.socket.setblocking(False)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerLost("the fork server was killed") from error

    def fileno(self) -> int | None:
        return self.socket.fileno()

    def events(self) -> list[Started | Ended]:
        """Return what happened since the last call. Raise WorkerLost once a killed server has nothing left to read."""
        found: list[Started | Ended] = []
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return found
            except ConnectionResetError:
                continue  # reported once, before what the server had still written
            if not data:
                if found:
                    return found
                raise WorkerLost("the fork server was killed")
            reply = json.loads(data)
            found.append(
                Started(reply["started"], reply["pid"])
                if "started" in reply
                else Ended(reply["ended"], reply["status"])
            )

    def close(self) -> None:
        """End the server and all below it. A server that is alive does so itself when its socket closes."""
        self.socket.close()
        if not self.loaded:
            tree.kill_tree(self.process.pid)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            tree.kill_tree(self.process.pid)
            self.process.wait()
        self._sweep()
        tree.become_subreaper(False)

    def _sweep(self) -> None:
        """Kill what a killed server left: every process with the mark of the pool in its environment."""
        for _ in range(200):
            left = tree.marked(f"{MARK}={self.mark}")
            if not left:
                return
            tree.kill_all(left)
            for pid in left:
                reap(pid)
            time.sleep(0.005)


def reap(pid: int) -> None:
    """Reap a dead child, and ignore a process that is not a child of this one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class SpawnLauncher:
    """Starts a new interpreter for every task, in its own process group."""

    loading = False

    def __init__(self, work: Path, note: str) -> None:
        self.work, self.note = work, note
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.fresh: list[Started | Ended] = []

    def ready(self) -> Launcher:
        return self

    def start(self, task: dict[str, Any], evidence_fd: int, output_fd: int) -> None:
        file = self.work / f"{uuid.uuid4().hex}.json"
        file.write_text(json.dumps(task), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pv.workers.worker", str(evidence_fd), str(output_fd), str(file)],
            pass_fds=[evidence_fd, output_fd],
            stdin=subprocess.DEVNULL,
            env=environment(""),
            start_new_session=True,
        )
        self.processes[task["id"]] = process
        self.fresh.append(Started(task["id"], process.pid))

    def fileno(self) -> int | None:
        return None

    def events(self) -> list[Started | Ended]:
        found, self.fresh = self.fresh, []
        for task, process in list(self.processes.items()):
            code = process.poll()
            if code is not None:
                del self.processes[task]
                _kill_group(process.pid)
                found.append(Ended(task, -code if code < 0 else code << 8))
        return found

    def kill(self, task: str) -> None:
        process = self.processes.get(task)
        if process is not None:
            tree.kill_tree(process.pid)
            _kill_group(process.pid)

    def close(self) -> None:
        for task, process in list(self.processes.items()):
            self.kill(task)
            process.wait()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, 9)
    except (ProcessLookupError, PermissionError):
        pass
