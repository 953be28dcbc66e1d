"""The fork server: one thread, heavy libraries loaded, the code under contract never. A task is one fork of it.

Run as `python -m pv.workers.server FD CONFIG`. It reads tasks from a SEQPACKET socket, each with the descriptors for
evidence and output, and answers when a task starts and ends. It ends, with all that it started, when the socket does.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pv.instrument import code_cache, files
from pv.workers import pages, tasks, tree, worker
from pv.workers.streams import EVIDENCE_FD, adopt

MAX_MESSAGE = 1 << 20
NO_ANSWER = 97
MANY = 32
"""The forks that cost about as much as to collapse the memory, which makes the others cheaper."""


class Server:
    def __init__(self, sock: socket.socket, work: str) -> None:
        self.sock, self.work, self.pid = sock, work, os.getpid()
        self.tasks: dict[int, str] = {}
        self.forks = 0
        self.wake_read, self.wake_write = os.pipe()
        for fd in (self.wake_read, self.wake_write):
            os.set_blocking(fd, False)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self.sock.fileno(), self.wake_read], [], [])
            if self.wake_read in ready:
                self._reap()
            if self.sock.fileno() in ready:
                self._receive()

    def _receive(self) -> None:
        message, fds, _, _ = socket.recv_fds(self.sock, MAX_MESSAGE, 2)
        if not message:
            self._leave()
        request = json.loads(message)
        if "kill" in request:
            tree.kill_all(pid for pid, task in self.tasks.items() if task == request["kill"])
            return
        code_cache.hold(Path(self.work, worker.CODE))
        pid = os.fork()
        if pid == 0:
            self._become_worker(request, fds)
        self.tasks[pid] = request["id"]
        for fd in fds:
            os.close(fd)
        self._send({"started": request["id"], "pid": pid})
        self.forks += 1
        if self.forks == MANY:
            pages.collapse()

    def _become_worker(self, request: dict[str, Any], fds: list[int]) -> None:
        status = NO_ANSWER
        try:
            self._detach(fds)
            worker.run(request, EVIDENCE_FD)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _detach(self, fds: list[int]) -> None:
        tree.die_with_parent()
        if os.getppid() != self.pid:
            os._exit(NO_ANSWER)  # the server died before it could be watched
        tree.become_subreaper()
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.sock.close()
        os.close(self.wake_read)
        os.close(self.wake_write)
        adopt(*fds)

    def _reap(self) -> None:
        try:
            while os.read(self.wake_read, 4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.tasks:
                self._sweep(keep=set(self.tasks) - {pid})
                self._send({"ended": self.tasks.pop(pid), "status": status})

    def _sweep(self, keep: set[int]) -> None:
        """End every child that is not a live worker: a dead worker left it behind."""
        for _ in range(50):
            orphans = [pid for pid in tree.children(os.getpid()) if pid not in keep and tree.alive(pid)]
            if not orphans:
                return
            tree.kill_all(orphans)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self.sock.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            self._leave()

    def _leave(self) -> None:
        tree.kill_all(list(self.tasks))
        self._sweep(keep=set())
        shutil.rmtree(self.work, ignore_errors=True)
        os._exit(0)


def preload(names: list[str]) -> None:
    """Import what can be imported of `names`, and fill the caches that every worker would fill first."""
    gc.disable()  # searches for garbage take a tenth of the import time of large libraries, and find little
    for name in names:
        # Whatever a third-party import raises: a worker that needs it will say so.
        with contextlib.suppress(Exception):
            _load(name)
    if "hypothesis" in sys.modules:
        _use_hypothesis()
    tasks.prepare()
    files.loaded_files()
    files.loaded_packages()
    gc.freeze()  # also garbage: to search for it takes longer than it is worth
    gc.enable()


@contextlib.contextmanager
def _uninitialised_cuda() -> Iterator[None]:
    """Let libraries that are imported ask the driver's library for GPUs, not CUDA: it cannot be used after a fork."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _use_hypothesis() -> None:
    from hypothesis import given, settings
    from hypothesis import strategies as st

    from pv.engines.property import constants

    constants.only_from()
    drawn = st.tuples(st.lists(st.integers()), st.floats(), st.text(), st.booleans() | st.sampled_from("ab"))
    test = given(drawn, st.data())(lambda value, data: None)
    settings(database=None, max_examples=2, deadline=None, derandomize=True)(test)()


def _load(name: str) -> None:
    """Import a module, or look up a name in one: some packages import their parts when they are asked for."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        getattr(importlib.import_module(module), attribute)


def main() -> None:
    fd, config = int(sys.argv[1]), json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=fd)
    with _uninitialised_cuda():
        preload(config["preload"])
    pages.fill()
    tree.become_subreaper()
    ready = {"threads": tree.threads()}
    sock.send(json.dumps({"ready": ready}).encode())
    Server(sock, config["work"]).serve()


if __name__ == "__main__":
    main()
