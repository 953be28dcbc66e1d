"""Decides whether forks of a process can share the modules that it imports. Standard library only.

A fork inherits imported modules with their state. That is as good as importing them anew if the imports only created
objects. It is not if they touched anything that a fork shares with its parent or lacks (files, sockets, threads, shared
memory), that the process sets anew after a fork (signal handlers, the generator of `random`, the folder of temporary
files), or that should differ between processes (process ids, random numbers).
"""

import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pv.instrument import audit, code_cache

EFFECTS = frozenset(
    "os.chdir os.chflags os.chmod os.chown os.exec os.fork os.forkpty os.kill os.killpg os.link os.lockf os.mkdir "
    "os.posix_spawn os.remove os.rename os.rmdir os.setxattr os.symlink os.system os.truncate os.utime "
    "fcntl.fcntl fcntl.flock fcntl.lockf mmap.__new__ pty.spawn resource.setrlimit signal.pthread_kill "
    "socket.__new__ socket.getaddrinfo sqlite3.connect subprocess.Popen syslog.openlog _thread.start_new_thread".split()
)
"""Audit events of changes outside the interpreter."""
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OF_ONE_PROCESS = ("TMPDIR", "PV_HOOK")
"""Environment variables that differ between the workers of a run."""


class ImportEffects:
    """Observes the imports of this process, from its creation until `reason` is called.

    Args:
        own: The folder in which `pv` itself may write.
    """

    def __init__(self, own: str) -> None:
        self._own, self._reason, self._active = own, "", True
        self._restore: list[Callable[[], None]] = []
        self._modules = frozenset(sys.modules)
        self._state = _state()
        self._written = _written()
        audit.observe({"open", *EFFECTS}, self._record_event)
        self._note_calls(os, "getpid")
        self._note_calls(os, "urandom")
        self._note_calls(os, "register_at_fork")
        self._note_calls(random, "_urandom")
        self._note_calls(random.Random, "seed", lambda _, value=None, *rest: value is None)
        self._note_calls(type(os.environ), "__getitem__", lambda _, name: name in OF_ONE_PROCESS)

    def reason(self) -> str:
        """Return why forks cannot share what was imported, "" if they can, and end the observation."""
        self._active = False
        audit.leave(self._record_event)
        for restore in self._restore:
            restore()
        sys.stdout.flush()
        sys.stderr.flush()
        state, written = _state(), _written()
        changed = next((name for name, value in state.items() if value != self._state[name]), "")
        if not self._reason and changed:
            self._reason = f"importing changed {changed}"
        # Also what was printed: it belongs to the output of every attempt.
        if not self._reason and (written is None or written != self._written):
            self._reason = "importing wrote to a file or printed"
        return self._reason

    def packages(self) -> frozenset[str]:
        """Return the top-level packages of the modules that were imported."""
        return frozenset(name.partition(".")[0] for name in sys.modules.keys() - self._modules)

    def _note_calls(self, owner: object, name: str, matters: Callable[..., bool] = lambda *_: True) -> None:
        """Let a function of `owner` record that it is called, where `matters` is true of its arguments."""
        function = getattr(owner, name)

        def noted(*arguments: object, **named: object) -> object:
            if self._active and matters(*arguments, **named):
                self._reason = self._reason or f"importing called {name}"
            return function(*arguments, **named)

        setattr(owner, name, noted)
        self._restore.append(lambda: setattr(owner, name, function))

    def _record_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not (arguments[2] or 0) & WRITES:
            return
        if not (arguments and self._is_own(arguments[0])):
            self._reason = self._reason or f"importing raised the audit event {event} with {arguments[:1]}"

    def _is_own(self, path: object) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(self._own)


def _state() -> dict[str, object]:
    """Return what imports should leave as it is, by name."""
    mappings = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    return {
        "the open files": frozenset(os.listdir("/proc/self/fd")),  # noqa: PTH208  (numbers, not paths)
        "shared memory": frozenset(line for line in mappings if line.split()[1].endswith("s")),
        "the threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208  (as above)
        "the current folder": os.getcwd(),  # noqa: PTH109  (code under test may replace what Path.cwd calls)
        "signal handlers": [signal.getsignal(number) for number in signal.valid_signals()],
        "timers": [
            signal.getitimer(timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
        ],
        "the folder of temporary files": tempfile.tempdir,
        "the random numbers of `random`": random.getstate(),
        # A fork inherits the generators of NumPy and PyTorch, so each worker that imports a module draws the same from
        # them. Only a process that loads NumPy itself seeds the generator anew.
        "the generator of NumPy": "numpy.random" in sys.modules,
        "CUDA": _cuda_is_initialized(),
    }


def _cuda_is_initialized() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _written() -> int | None:
    """Return the bytes that this process has written, but for the code that it has kept; None if that is unknown."""
    with suppress(OSError, ValueError, IndexError):
        text = Path("/proc/self/io").read_text(encoding="ascii")
        return int(text.partition("wchar:")[2].split()[0]) - code_cache.written_bytes
    return None
