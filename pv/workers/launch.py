"""Starts the processes of tasks: `ForkLauncher` forks a loaded server, `SpawnLauncher` starts an interpreter anew.

A fork takes 12 ms, a new interpreter about a second. `launcher` chooses the fork server where the system supports it.
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from pv.errors import WorkerLost
from pv.results.reuse.environment import inherited
from pv.workers import tree

POOL_VARIABLE = "PV_POOL"
"""The environment variable that marks the processes of a pool."""
ONE_THREAD = {
    # The pool already uses every core: more threads in a worker would only compete, and could not be forked.
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow's allocator, which Hugging Face's datasets load
}
PACKAGE_HOME = Path(__file__).resolve().parents[2]
START_LIMIT_S = 120.0
"""Limit of the CPU time in which a server loads its libraries, and limit of the time in which it waits meanwhile."""
MEASURE_S = 0.25
"""Seconds between two measurements of a server that loads its libraries."""
MAX_OUTPUT = 4000
"""Characters of a server's output that an error quotes."""
MAX_MESSAGE = 1 << 16
"""Bytes of a message from the server."""

MAX_MODULE_SERVERS = 8
"""The number of module servers that are kept for later tasks: each holds the memory of its modules."""
NEEDS_IMPORT = 98
"""Exit status of a worker whose task needs a worker that imports its modules anew."""

TaskMessage = dict[str, Any]
"""A task as JSON: `Body.as_json` with the keys `id` and `scratch`."""


@dataclass(frozen=True, slots=True)
class Started:
    """The event that a process of a task has started, or that the task goes on in another one.

    imported_s: the CPU time of the module server that has imported the modules of the task; 0 without one.
    """

    task: str
    pid: int
    imported_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NeedsImport:
    """The event that a module server cannot run a task: start it again without the key `modules`."""

    task: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The event that the process of a task has ended."""

    task: str
    status: int
    """As from os.wait: see os.WIFSIGNALED and os.WEXITSTATUS."""


Event = Started | Ended | NeedsImport


class Launcher(Protocol):
    """Starts one process per task, reports its start and end, and kills it with all its descendants."""

    note: str
    """The note to the user on how tasks are started, or ""."""

    @property
    def loading(self) -> bool:
        """Whether `ready` would wait."""
        ...

    def ready(self) -> "Launcher":
        """Wait until tasks can be started, and return the launcher that starts them.

        Raises:
            WorkerLost: No task can be started.
        """
        ...

    def imports(self, modules: str) -> bool:
        """Return whether a worker imports these modules now, and later tasks may then share them."""
        ...

    def start(self, task: TaskMessage, evidence_fd: int, output_fd: int) -> None:
        """Start the process of a task, which writes to these two pipes."""
        ...

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when there are events; None if there is no such descriptor."""
        ...

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        ...

    def kill(self, task: str) -> None:
        """Kill the process of a task with its descendants; a task that has ended is ignored."""
        ...

    def close(self) -> None:
        """Kill all tasks and release all resources."""
        ...


def environment(pool_id: str) -> dict[str, str]:
    """Return the environment of a worker: one thread, and `pv` on the path where it is not installed."""
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if PACKAGE_HOME.name not in ("site-packages", "dist-packages"):
        entries.append(str(PACKAGE_HOME))
    return {**inherited(os.environ), **ONE_THREAD, POOL_VARIABLE: pool_id, "PYTHONPATH": os.pathsep.join(entries)}


def launcher(preload: list[str], work: Path, *, spawn: bool = False) -> Launcher:
    """Start a fork server if the kernel supports one, or else return a spawning launcher.

    Args:
        preload: The modules that the fork server imports.
        work: The directory of the pool.
        spawn: Never use a fork server.
    """
    if spawn:
        return SpawnLauncher(work, "tasks are spawned, as requested")
    if not tree.supported():
        return SpawnLauncher(work, "tasks are spawned: this system has no subreapers or no /proc")
    return ForkLauncher(preload, work)


class _Modules(Enum):
    """The state of the modules of some tasks, by `Body.modules`, as far as it is not a module server."""

    IMPORTING = "importing"
    """A worker imports them, and becomes a module server if it can."""
    UNSHARED = "unshared"
    """Every worker imports them anew."""


@dataclass(eq=False)
class _Server:
    """A fork server, seen from its client, with the ids of the tasks that it runs."""

    socket: socket.socket
    modules: str = ""
    """The modules that it has imported, "" for the server that has only loaded libraries."""
    tasks: set[str] = field(default_factory=set)


class ForkLauncher:
    """A client of fork servers (`pv.workers.server`). Its methods raise WorkerLost once a server is dead.

    One server has loaded libraries. It forks workers, some of which become module servers: these have also imported the
    modules of a task, and fork workers for later tasks with the same modules. A module server ends when
    `MAX_MODULE_SERVERS` have been used since.
    """

    note = ""

    def __init__(self, preload: list[str], work: Path) -> None:
        self.pool_id = uuid.uuid4().hex
        self.preload, self.work = preload, work
        # SEQPACKET keeps the borders of messages, and carries the descriptors of a task with its message.
        ours, servers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The orphans of a killed server become children of this process, which can then kill and reap them.
        tree.become_subreaper()
        config = json.dumps({"preload": preload, "work": str(work)})
        self.log = work / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pv.workers.server", str(servers.fileno()), config],
                pass_fds=[servers.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.pool_id),
                start_new_session=True,
            )
        servers.close()
        self.socket = ours
        self.loaded = False
        self._libraries = _Server(ours)
        self._modules: dict[str, _Server | _Modules] = {}
        """Every module server, the one that was used last at the end, and which modules have none."""
        self._ours: dict[int, _Server] = {}
        """The servers by the descriptors of their sockets, also those that are not module servers yet."""
        self._became_servers: set[str] = set()
        """The tasks whose first process has become a module server."""
        self._epoll = select.epoll()
        self._watch(self._libraries)

    def _watch(self, server: _Server) -> None:
        self._ours[server.socket.fileno()] = server
        self._epoll.register(server.socket.fileno(), select.EPOLLIN)

    @property
    def loading(self) -> bool:
        return not self.loaded and not select.select([self.socket], [], [], 0)[0]

    def ready(self) -> Launcher:
        """Wait for the server, and return this launcher, or a spawning one if a library has started threads.

        A fork has only the thread that forked: a library that waits for another one of its threads would hang.
        """
        library_threads = self._wait_until_loaded()["threads"] - 1
        if not library_threads:
            return self
        self.close()
        self.work.mkdir(exist_ok=True)
        note = f"tasks are spawned: loading {', '.join(self.preload)} started {library_threads} threads"
        return SpawnLauncher(self.work, note)

    def _wait_until_loaded(self) -> dict[str, Any]:
        """Return the report that the server sends once its libraries are loaded. Raise WorkerLost."""
        start = last = time.monotonic()
        cpu_s = idle_s = 0.0
        reason = ""
        # Two limits in place of one on wall time, which a busy machine would exceed: the CPU time used, and the time
        # in which the server neither computed nor was ready to run.
        while not reason and not select.select([self.socket], [], [], MEASURE_S)[0]:
            usage, now = tree.usage(self.process.pid), time.monotonic()
            idle_s += 0.0 if usage.active or usage.cpu_s > cpu_s else now - last
            last, cpu_s = now, max(cpu_s, usage.cpu_s)
            if cpu_s > START_LIMIT_S:
                reason = f"it computed for more than {START_LIMIT_S:g} s"
            elif idle_s > START_LIMIT_S:
                reason = f"it waited for more than {START_LIMIT_S:g} s, without computing"
        message = b"" if reason else self.socket.recv(MAX_MESSAGE)
        if not message:
            raise self._failure(reason or self._exit_reason(), cpu_s, time.monotonic() - start)
        self.socket.setblocking(False)
        self.loaded = True
        report: dict[str, Any] = json.loads(message)["ready"]
        return report

    def _exit_reason(self) -> str:
        """Return how a server ended that closed its socket."""
        try:
            status = self.process.wait(START_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        if status >= 0:
            return f"it ended with exit code {status}"
        memory = ", for lack of memory if nobody killed it" if status == -signal.SIGKILL else ""
        return f"it was killed by signal {-status} ({signal.Signals(-status).name}){memory}"

    def _failure(self, reason: str, cpu_s: float, seconds: float) -> WorkerLost:
        """End a server that did not start. Return the error with the reason, the effort, and the server's output."""
        output = self.log.read_text(encoding="utf-8", errors="replace").strip() if self.log.exists() else ""
        self.close()
        quoted = f"its output:\n{output[-MAX_OUTPUT:]}" if output else "it printed nothing"
        return WorkerLost(
            f"the fork server did not start: {reason}; {cpu_s:.1f} s of CPU time in {seconds:.1f} s, to load "
            f"{', '.join(self.preload) or 'nothing'}; `--spawn` runs without it; {quoted}"
        )

    def imports(self, modules: str) -> bool:
        return self._modules.get(modules) is _Modules.IMPORTING

    def start(self, task: TaskMessage, evidence_fd: int, output_fd: int) -> None:
        fds, modules = [evidence_fd, output_fd], task["modules"]
        state = self._modules.get(modules) if modules else _Modules.UNSHARED
        server = state if isinstance(state, _Server) else self._libraries
        if isinstance(state, _Server):
            self._modules[modules] = self._modules.pop(modules)  # used last
        elif state is None:
            self._start_module_server(task, fds)
            return
        self._send(server, task, fds)

    def _start_module_server(self, task: TaskMessage, fds: list[int]) -> None:
        """Start a task whose worker imports its modules for later tasks too."""
        ours, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._send(self._libraries, task, [*fds, workers.fileno()])
        except WorkerLost:
            ours.close()
            raise
        finally:
            workers.close()
        ours.setblocking(False)
        self._watch(_Server(ours, task["modules"]))
        self._modules[task["modules"]] = _Modules.IMPORTING

    def kill(self, task: str) -> None:
        server = next((server for server in self._ours.values() if task in server.tasks), None)
        if server is not None:
            self._send(server, {"kill": task}, [])

    def _send(self, server: _Server, message: TaskMessage, fds: list[int]) -> None:
        try:
            server.socket.setblocking(True)
            socket.send_fds(server.socket, [json.dumps(message).encode()], fds)
            server.socket.setblocking(False)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerLost("a fork server was killed") from error
        if "id" in message:
            server.tasks.add(message["id"])

    def fileno(self) -> int | None:
        return self._epoll.fileno()

    def events(self) -> list[Event]:
        """Return the events since the last call. Raise WorkerLost once a killed server has nothing left to read."""
        events: list[Event] = []
        lost = False
        for fd, _ in self._epoll.poll(0):
            server = self._ours[fd]
            for message in self._messages(server):
                if message is None:
                    lost = lost or not self._was_no_server(server)
                elif (event := self._event(server, message)) is not None:
                    events.append(event)
        if lost and not events:
            raise WorkerLost("a fork server was killed")
        self._close_unused()
        return events

    def _messages(self, server: _Server) -> Iterator[dict[str, object] | None]:
        """Yield the messages from a server that can be read now, and None at the end of its socket."""
        while True:
            try:
                data = server.socket.recv(MAX_MESSAGE)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # the kernel reports it once, before the messages that the server had still written
            yield json.loads(data) if data else None
            if not data:
                return

    def _event(self, server: _Server, message: dict[str, Any]) -> Event | None:
        """Return the event of a message; None for the end of a module server, whose task goes on elsewhere."""
        if "started" in message:
            task = message["started"]
            if server.modules and self._modules[server.modules] is _Modules.IMPORTING:
                # The worker of this task has become a module server: the task goes on in its fork.
                self._libraries.tasks.discard(task)
                self._became_servers.add(task)
                self._modules[server.modules] = server
                server.tasks.add(task)
            return Started(task, message["pid"], message["imported_s"])
        task, status = message["ended"], message["status"]
        if server is self._libraries and task in self._became_servers:
            self._became_servers.discard(task)
            return None
        server.tasks.discard(task)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == NEEDS_IMPORT:
            return NeedsImport(task)
        return Ended(task, status)

    def _was_no_server(self, server: _Server) -> bool:
        """Return whether the socket belongs to a worker that cannot share its modules, and forget it then."""
        if not server.modules or self._modules[server.modules] is not _Modules.IMPORTING:
            return False
        self._modules[server.modules] = _Modules.UNSHARED
        self._close(server)
        return True

    def _close_unused(self) -> None:
        """End the module servers that have been used least recently and run no task, if there are too many."""
        servers = [server for server in self._modules.values() if isinstance(server, _Server)]
        unused = [server for server in servers if not server.tasks]
        for server in unused[: max(0, len(servers) - MAX_MODULE_SERVERS)]:
            del self._modules[server.modules]
            self._close(server)

    def _close(self, server: _Server) -> None:
        """Close the socket of a server, which then ends."""
        self._epoll.unregister(server.socket.fileno())
        del self._ours[server.socket.fileno()]
        server.socket.close()

    def close(self) -> None:
        """End the servers and all their descendants."""
        for server in list(self._ours.values()):
            server.socket.close()
        self._epoll.close()
        # A loaded server reads from its socket, and ends itself and its workers when the socket closes.
        if not self.loaded:
            tree.kill_tree(self.process.pid)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            tree.kill_tree(self.process.pid)
            self.process.wait()
        self._kill_marked()
        tree.become_subreaper(False)

    def _kill_marked(self) -> None:
        """Kill the processes that a killed server left: those with the id of the pool in their environment."""
        # Repeated, since a process can fork between the search and its end.
        for _ in range(200):
            marked = tree.marked(f"{POOL_VARIABLE}={self.pool_id}")
            if not marked:
                return
            tree.kill_all(marked)
            for pid in marked:
                reap(pid)
            time.sleep(0.005)


def reap(pid: int) -> None:
    """Reap a dead child, and ignore a process that is not a child of this one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class SpawnLauncher:
    """Starts a new interpreter (`pv.workers.worker`) for every task, in its own process group."""

    loading = False

    def __init__(self, work: Path, note: str) -> None:
        self.work, self.note = work, note
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.new_events: list[Event] = []

    def ready(self) -> Launcher:
        return self

    def imports(self, modules: str) -> bool:
        return False

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
                events.append(Ended(task, -code if code < 0 else code << 8))  # as os.wait encodes a status
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


def _kill_group(pid: int) -> None:
    """Kill the children that a task left behind: they stay in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
