"""The fork server: a process of one thread with all libraries loaded, which forks itself once for every task.

Run as `python -m pv.workers.server FD CONFIG`. FD is a SEQPACKET socket:

1. The server imports the libraries of CONFIG, never the code under contract, and sends `ready`.
2. For each task that it receives, with two file descriptors for evidence and output, it forks and sends `started`.
3. When a task ends, the server kills the processes that the task left behind, and sends `ended`.
4. When the socket closes, the server kills all tasks, removes the directory of the pool, and exits.
"""

import contextlib
import ctypes
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

from pv.instrument import code_cache, files
from pv.workers import tasks, tree, worker
from pv.workers.worker import EVIDENCE_FD, use_descriptors

MAX_MESSAGE = 1 << 20
"""Maximum size in bytes of a message from the client."""
NO_RESULT = 97
"""Exit status of a worker that an exception ended. An exception of an attack is a result, and ends no worker."""
FORKS_BEFORE_COLLAPSE = 32
"""Number of forks after which `collapse_pages` is called. The call takes as long as this many later forks save."""
MADV_COLLAPSE = 25  # since Linux 6.1; in older kernels, the call fails without harm
BLOCKS = range(16, 513, 16)
"""Sizes, in bytes, of the memory blocks in which CPython stores small objects."""
FREE_BYTES = 1 << 19
"""Bytes to allocate for each block size: about twice the free bytes after the import of torch and transformers."""

Message = dict[str, object]
"""A JSON object from or to the client (`pv.workers.launch.ForkLauncher`)."""


class Server:
    """Forks a worker for each task that arrives on `sock`, until `sock` closes.

    Attributes:
        tasks: The ids of the running tasks, by process id.
    """

    def __init__(self, sock: socket.socket, work: str) -> None:
        self.sock, self.work, self.pid = sock, work, os.getpid()
        self.tasks: dict[int, str] = {}
        self.forks = 0
        self.wake_read, self.wake_write = os.pipe()
        for fd in (self.wake_read, self.wake_write):
            os.set_blocking(fd, False)

    def serve(self) -> None:
        """Handle tasks and ends of workers until the socket closes, then exit the process."""
        # If SIGCHLD has a handler, even an empty one, Python writes a byte to the pipe for each signal. So `select`
        # returns even if a worker ends just before the call.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self.sock.fileno(), self.wake_read], [], [])
            if self.wake_read in ready:
                self._reap()
            if self.sock.fileno() in ready:
                self._receive()

    def _receive(self) -> None:
        """Handle one message of the client: start or kill a task."""
        message, fds, _, _ = socket.recv_fds(self.sock, MAX_MESSAGE, 2)
        if not message:
            self._leave()
        request = json.loads(message)
        if "kill" in request:
            tree.kill_all(pid for pid, task in self.tasks.items() if task == request["kill"])
            return
        code_cache.preload(Path(self.work, worker.CODE))
        pid = os.fork()
        if pid == 0:
            self._become_worker(request, fds)
        self.tasks[pid] = request["id"]
        for fd in fds:
            os.close(fd)
        self._send({"started": request["id"], "pid": pid})
        self.forks += 1
        if self.forks == FORKS_BEFORE_COLLAPSE:
            collapse_pages()

    def _become_worker(self, request: Message, fds: list[int]) -> None:
        """Run a task in this fork of the server, and exit."""
        status = NO_RESULT
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
        """Separate a fork from the server: new session, default signal handlers, own descriptors."""
        tree.die_with_parent()
        if os.getppid() != self.pid:
            os._exit(NO_RESULT)  # the server died before `die_with_parent` took effect
        tree.become_subreaper()
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.sock.close()
        os.close(self.wake_read)
        os.close(self.wake_write)
        use_descriptors(*fds)

    def _reap(self) -> None:
        """Report the workers that have ended, and kill the processes that they left behind."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake_read, 4096):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.tasks:
                self._kill_orphans(keep=set(self.tasks) - {pid})
                self._send({"ended": self.tasks.pop(pid), "status": status})

    def _kill_orphans(self, keep: set[int]) -> None:
        """Kill every child except the workers in `keep`. As a subreaper, this process adopts orphans of workers."""
        for _ in range(50):
            orphans = [pid for pid in tree.children(os.getpid()) if pid not in keep and tree.is_alive(pid)]
            if not orphans:
                return
            tree.kill_all(orphans)

    def _send(self, message: Message) -> None:
        """Send a message to the client; call `_leave` if the client is gone."""
        try:
            self.sock.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            self._leave()

    def _leave(self) -> None:
        """Kill all tasks and exit; the client is gone."""
        tree.kill_all(list(self.tasks))
        self._kill_orphans(keep=set())
        shutil.rmtree(self.work, ignore_errors=True)
        os._exit(0)


def preload(names: list[str]) -> None:
    """Import modules, and fill caches, so that workers inherit the filled caches.

    Args:
        names: Modules, and dotted names in modules. Names that cannot be imported are ignored.
    """
    gc.disable()  # garbage collection takes a tenth of the import time of large libraries, and frees little
    for name in names:
        # Ignore any exception of an import: the worker that needs the module reports it.
        with contextlib.suppress(Exception):
            _load(name)
    if "hypothesis" in sys.modules:
        _warm_up_hypothesis()
    tasks.generate_hooks()
    files.loaded_files()
    files.loaded_packages()
    # Exempt all objects from garbage collection, which would write to their memory in every fork. Do not call
    # `gc.collect` before: the call takes longer than it saves.
    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def _uninitialised_cuda() -> Iterator[None]:
    """Let libraries look for GPUs with NVML while they are imported: forks cannot use CUDA once it is initialised."""
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


def _warm_up_hypothesis() -> None:
    """Draw two examples, so that Hypothesis loads its parts and fills its caches before the forks."""
    from hypothesis import given, settings
    from hypothesis import strategies as st

    from pv.engines.property import constants

    constants.draw_from()
    drawn = st.tuples(st.lists(st.integers()), st.floats(), st.text(), st.booleans() | st.sampled_from("ab"))
    test = given(drawn, st.data())(lambda value, data: None)
    settings(database=None, max_examples=2, deadline=None, derandomize=True)(test)()


def _load(name: str) -> None:
    """Import a module, or look up a name in a module: a package with lazy attributes then imports the part."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        getattr(importlib.import_module(module), attribute)


def fill_free_blocks() -> None:
    """Allocate the free blocks for small objects, so that forks do not allocate in shared pages.

    CPython allocates small objects in blocks of 16 to 512 bytes, several in a page, and the imports leave many blocks
    free. A fork that allocates such a block writes to a page that it shares with the server, so the kernel copies the
    page. If no block is free, a fork allocates in new pages.
    """
    for size in BLOCKS:
        _fillers.extend(_object_of_size(size) for _ in range(FREE_BYTES // size))


_fillers: list[object] = []
"""The objects that fill the blocks. They must never be freed."""


def _object_of_size(size: int) -> object:
    """Return a new object that takes one block of `size` bytes."""
    # An empty `bytes` has 33 bytes, too many for blocks of 16 and 32: `object()` has 16 bytes, a float has 24.
    header = b"".__sizeof__()
    if size > header:
        return bytes(size - header)
    return float("0.5") if size > object().__sizeof__() else object()


def collapse_pages() -> None:
    """Ask the kernel for huge pages in private memory: a fork then copies 1 page table entry per 2 MiB, not 512."""
    libc = ctypes.CDLL(None)
    # Private writable mappings without a file ("rw-p", inode 0) are the heap and other anonymous memory.
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, _, _, inode, *_ = line.split()
        if permissions == "rw-p" and inode == "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)


def main() -> None:
    """Load the libraries, report to the client, and serve its tasks."""
    fd, config = int(sys.argv[1]), json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=fd)
    with _uninitialised_cuda():
        preload(config["preload"])
    fill_free_blocks()
    tree.become_subreaper()
    ready = {"threads": tree.count_threads()}
    sock.send(json.dumps({"ready": ready}).encode())
    Server(sock, config["work"]).serve()


if __name__ == "__main__":
    main()
