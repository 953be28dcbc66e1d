"""Starts each task as a fork of one server that has loaded the libraries, at 12 ms each."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from pv.errors import WorkerLost
from pv.workers import tree
from pv.workers.launch import MARK, Ended, Launcher, Started, environment
from pv.workers.spawning import SpawnLauncher

START_LIMIT_S = 120.0
"""The limit of the CPU time in which a server loads its libraries, and of the time in which it waits meanwhile."""
LOOK_S = 0.25
MAX_OUTPUT = 4000


def launcher(preload: list[str], work: Path, *, spawn: bool = False) -> Launcher:
    """Return a new fork server, which loads its libraries, if the kernel supports it; else a spawning launcher."""
    if spawn:
        return SpawnLauncher(work, "tasks are spawned, as requested")
    if not tree.supported():
        return SpawnLauncher(work, "tasks are spawned: this system has no subreapers or no /proc")
    return ForkLauncher(preload, work)


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
        start = seen = time.monotonic()
        cpu_s = idle_s = 0.0
        why = ""
        while not why and not select.select([self.socket], [], [], LOOK_S)[0]:
            use, now = tree.use(self.process.pid), time.monotonic()
            idle_s += 0.0 if use.active or use.cpu_s > cpu_s else now - seen  # on busy cores it is ready to run
            seen, cpu_s = now, max(cpu_s, use.cpu_s)
            if cpu_s > START_LIMIT_S:
                why = f"it computed for more than {START_LIMIT_S:g} s"
            elif idle_s > START_LIMIT_S:
                why = f"it waited for more than {START_LIMIT_S:g} s, without computing"
        message = b"" if why else self.socket.recv(1 << 16)
        if not message:
            raise self._failure(why or self._end(), cpu_s, time.monotonic() - start)
        self.socket.setblocking(False)
        self.loaded = True
        ready: dict[str, Any] = json.loads(message)["ready"]
        return ready

    def _end(self) -> str:
        """Return how a server ended that closed its socket."""
        try:
            status = self.process.wait(START_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        if status >= 0:
            return f"it ended with exit code {status}"
        memory = ", for lack of memory if nobody killed it" if status == -signal.SIGKILL else ""
        return f"it was killed by signal {-status} ({signal.Signals(-status).name}){memory}"

    def _failure(self, why: str, cpu_s: float, seconds: float) -> WorkerLost:
        """End a server that did not start. Return the error that says why, after how much effort, and its output."""
        output = self.log.read_text(encoding="utf-8", errors="replace").strip() if self.log.exists() else ""
        self.close()
        said = f"its output:\n{output[-MAX_OUTPUT:]}" if output else "it printed nothing"
        return WorkerLost(
            f"the fork server did not start: {why}; {cpu_s:.1f} s of CPU time in {seconds:.1f} s, to load "
            f"{', '.join(self.preload) or 'nothing'}; `--spawn` runs without it; {said}"
        )

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
