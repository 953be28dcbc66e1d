"""Start the processes of tasks: `ForkLauncher` forks a loaded server, `SpawnLauncher` starts new interpreters.

A fork takes 12 ms, a new interpreter about a second. `start_launcher` prefers the fork server.
"""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pv.errors import WorkerLost
from pv.results.reuse.environment import worker_variables
from pv.workers import tree

POOL_VARIABLE = "PV_POOL"
"""The environment variable that marks the processes of a pool."""
ONE_THREAD = {
    # The pool uses all cores already. More threads in a worker would compete for these, and a fork would lose them.
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow's allocator, which Hugging Face's datasets load
}
PACKAGE_HOME = Path(__file__).resolve().parents[2]
"""The folder from which `pv` is imported."""
START_LIMIT_S = 120.0
"""Limits in seconds on the CPU time and on the waiting time of a server that is loading its libraries."""
MEASURE_S = 0.25
"""Seconds between two measurements of a server that is loading its libraries."""
MAX_OUTPUT = 4000
"""Maximum number of characters of the server's output in an error message."""
MAX_MESSAGE = 1 << 16
"""Maximum size in bytes of a message from the server."""

TaskMessage = dict[str, Any]
"""A task as JSON: `Body.as_json` with the keys `id` and `scratch`."""


def describe_signal(number: int) -> str:
    """Return the number of a signal with its name; most real-time signals have no name in Python."""
    names = {each.value: each.name for each in signal.Signals}
    return f"signal {number} ({names[number]})" if number in names else f"signal {number}"


@dataclass(frozen=True, slots=True)
class Started:
    """The event that the process of a task has started."""

    task: str
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The event that the process of a task has ended."""

    task: str
    status: int
    """The exit status in the encoding of `os.wait`: see `os.WIFSIGNALED` and `os.WEXITSTATUS`."""


Event = Started | Ended


def environment(pool_id: str) -> dict[str, str]:
    """Return the environment variables of a worker or a server.

    With these variables, libraries use one thread, and Python finds `pv` even if it is not installed.

    Args:
        pool_id: The id of the pool, which marks its processes; "" for processes that need no mark.
    """
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if PACKAGE_HOME.name not in ("site-packages", "dist-packages"):
        entries.append(str(PACKAGE_HOME))
    path = os.pathsep.join(entries)
    return {**worker_variables(os.environ), **ONE_THREAD, POOL_VARIABLE: pool_id, "PYTHONPATH": path}


def start_launcher(preload: list[str], work: Path, *, spawn: bool = False) -> "Launcher":
    """Start a fork server and return its client. If the kernel does not support one, return a `SpawnLauncher`.

    Args:
        preload: The modules that the fork server imports.
        work: The directory of the pool.
        spawn: Do not use a fork server.
    """
    if spawn:
        return SpawnLauncher(work, "tasks are spawned, as requested")
    if not tree.supports_fork_server():
        return SpawnLauncher(work, "tasks are spawned: this system has no subreapers or no /proc")
    return ForkLauncher(preload, work)


class ForkLauncher:
    """Starts a fork server (`pv.workers.server`) and is its client. Methods raise WorkerLost if the server is dead."""

    note = ""
    """The note to the user on how tasks are started, or ""."""

    def __init__(self, preload: list[str], work: Path) -> None:
        self.pool_id = uuid.uuid4().hex
        self.preload, self.work = preload, work
        # SEQPACKET keeps message boundaries, and passes the file descriptors of a task with its message.
        self.socket, server_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The orphans of a killed server become children of this process, which can then kill and reap them.
        self.subreaper = contextlib.ExitStack()
        self.subreaper.enter_context(tree.subreaper())
        config = json.dumps({"preload": preload, "work": str(work)})
        self.log = work / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pv.workers.server", str(server_socket.fileno()), config],
                pass_fds=[server_socket.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.pool_id),
                start_new_session=True,
            )
        server_socket.close()
        self.loaded = False

    @property
    def loading(self) -> bool:
        """Whether the server is still loading its libraries, so that `ready` would wait."""
        return not self.loaded and not select.select([self.socket], [], [], 0)[0]

    def ready(self) -> "Launcher":
        """Wait until the server has loaded its libraries, and return the launcher to use.

        That is this launcher, or a `SpawnLauncher` if a library has started threads. A forked process has only the
        thread that called `fork`, so a library that waits for another thread would hang.
        """
        library_threads = self._wait_until_loaded() - 1
        if not library_threads:
            return self
        self.close()
        self.work.mkdir(exist_ok=True)  # the server removes the folder when it ends
        note = f"tasks are spawned: loading {', '.join(self.preload)} started {library_threads} threads"
        return SpawnLauncher(self.work, note)

    def _wait_until_loaded(self) -> int:
        """Wait until the server has loaded its libraries, and return its number of threads. Raise WorkerLost."""
        start = last = time.monotonic()
        cpu_s = idle_s = 0.0
        reason = ""
        # On a busy machine a correct server could exceed a limit on wall time. So limit the CPU time, and separately
        # the time in which the server neither computes nor is ready to run.
        while not reason and not select.select([self.socket], [], [], MEASURE_S)[0]:
            usage, now = tree.usage(self.process.pid), time.monotonic()
            idle_s += 0.0 if usage.active or usage.cpu_s > cpu_s else now - last
            last, cpu_s = now, max(cpu_s, usage.cpu_s)
            if cpu_s > START_LIMIT_S:
                reason = f"it computed for more than {START_LIMIT_S:g} s"
            elif idle_s > START_LIMIT_S:
                reason = f"it waited for more than {START_LIMIT_S:g} s, without computing"
        message = b"" if reason else self.socket.recv(MAX_MESSAGE)
        if not message:  # the limit was exceeded, or the server closed its socket
            raise self._failure(reason or self._exit_reason(), cpu_s, time.monotonic() - start)
        self.socket.setblocking(False)
        self.loaded = True
        return int(json.loads(message)["ready"]["threads"])

    def _exit_reason(self) -> str:
        """Describe how the server ended, after it closed its socket."""
        try:
            status = self.process.wait(START_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        if status >= 0:
            return f"it ended with exit code {status}"
        memory = ", perhaps by the kernel for lack of memory" if status == -signal.SIGKILL else ""
        return f"it was killed by {describe_signal(-status)}{memory}"

    def _failure(self, reason: str, cpu_s: float, seconds: float) -> WorkerLost:
        """End a server that did not start, and return the error.

        Args:
            reason: The reason, a text in which "it" means the server.
            cpu_s: The CPU time that the server has used, in seconds.
            seconds: The wall time since its start, in seconds.
        """
        output = self.log.read_text(encoding="utf-8", errors="replace").strip() if self.log.exists() else ""
        self.close()
        quoted = f"its output:\n{output[-MAX_OUTPUT:]}" if output else "it printed nothing"
        return WorkerLost(
            f"the fork server did not start: {reason}; {cpu_s:.1f} s of CPU time in {seconds:.1f} s, to load "
            f"{', '.join(self.preload) or 'nothing'}; `--spawn` runs without it; {quoted}"
        )

    def start(self, task: TaskMessage, evidence_fd: int, output_fd: int) -> None:
        """Start the process of a task. The process writes its evidence and its output to these file descriptors."""
        self._send(json.dumps(task).encode(), [evidence_fd, output_fd])

    def kill(self, task: str) -> None:
        """Kill the process of a task and its descendants. Do nothing if the task has ended."""
        self._send(json.dumps({"kill": task}).encode(), [])

    def _send(self, data: bytes, fds: list[int]) -> None:
        """Send a message with file descriptors to the server. Raise WorkerLost if the server is dead."""
        try:
            self.socket.setblocking(True)
            socket.send_fds(self.socket, [data], fds)
            self.socket.setblocking(False)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerLost("the fork server was killed") from error

    def fileno(self) -> int | None:
        """Return the file descriptor that is readable when there are events; None if the launcher has none."""
        return self.socket.fileno()

    def events(self) -> list[Event]:
        """Return the events since the last call. Raise WorkerLost if the server is dead and has no more events."""
        events: list[Event] = []
        while True:
            try:
                data = self.socket.recv(MAX_MESSAGE)
            except BlockingIOError:
                return events
            except ConnectionResetError:
                continue  # the kernel reports this error once; the last messages of the server can still be read
            if not data:
                if events:
                    return events
                raise WorkerLost("the fork server was killed")
            message = json.loads(data)
            if "started" in message:
                events.append(Started(message["started"], message["pid"]))
            else:
                events.append(Ended(message["ended"], message["status"]))

    def close(self) -> None:
        """End the server and all its descendants."""
        self.socket.close()
        # A loaded server waits for messages. When the socket closes, it kills its workers and ends.
        if not self.loaded:
            tree.kill_tree(self.process.pid)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            tree.kill_tree(self.process.pid)
            self.process.wait()
        self._kill_marked()
        self.subreaper.close()

    def _kill_marked(self) -> None:
        """Kill the processes that a killed server has left. They have the id of the pool in their environment."""
        # Repeat the search, because a process can fork before it is killed.
        for _ in range(200):
            marked = tree.find_marked(f"{POOL_VARIABLE}={self.pool_id}")
            if not marked:
                return
            tree.kill_all(marked)
            for pid in marked:
                reap(pid)
            time.sleep(0.005)


def reap(pid: int) -> None:
    """Reap a child that has ended; ignore a process that is not a child of this process."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class SpawnLauncher:
    """Starts a new interpreter (`pv.workers.worker`) for every task, in a new process group.

    It has the same methods as `ForkLauncher`.
    """

    loading = False

    def __init__(self, work: Path, note: str) -> None:
        self.work, self.note = work, note
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.new_events: list[Event] = []

    def ready(self) -> "Launcher":
        return self

    def start(self, task: TaskMessage, evidence_fd: int, output_fd: int) -> None:
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
        self.new_events.append(Started(task["id"], process.pid))

    def fileno(self) -> int | None:
        return None

    def events(self) -> list[Event]:
        events, self.new_events = self.new_events, []
        for task, process in list(self.processes.items()):
            code = process.poll()
            if code is not None:
                del self.processes[task]
                _kill_group(process.pid)
                # In the status of `os.wait`, a signal is in the low byte and an exit code in the high byte. `Popen`
                # returns minus the signal, or the exit code.
                events.append(Ended(task, -code if code < 0 else code << 8))
        return events

    def kill(self, task: str) -> None:
        process = self.processes.get(task)
        if process is not None:
            tree.kill_tree(process.pid)
            _kill_group(process.pid)

    def close(self) -> None:
        for task, process in list(self.processes.items()):
            self.kill(task)
            process.wait()


Launcher = ForkLauncher | SpawnLauncher
"""Starts one process for every task, reports its start and end, and kills the process and its descendants."""


def _kill_group(pid: int) -> None:
    """Kill the processes that a task has left in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
