"""Record what a worker and its child processes run, read and start. Children write their traces to a log at exit."""

import atexit
import json
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, NoReturn

from pv.instrument.coverage import ran, seen
from pv.instrument.files import FilesRead
from pv.instrument.import_hook import VARIABLE, ImportHook, Plan, install
from pv.instrument.process_trace import ProcessTrace, entries, trace_of, union
from pv.instrument.readers import HARMLESS, INTERMEDIARIES
from pv.source.project import is_installed

START_EVENTS = ("os.posix_spawn", "os.exec", "os.system", "os.forkpty", "pty.spawn")
"""Audit events of functions that start a process which is not counted, and which may write no trace."""
READ_DOCS = ("doctest", "docstring_parser", "fire", "jsonargparse", "pydoc", "simple_parsing", "typer", "tyro")
"""Libraries that may read the docstring of any object."""
TRACKER = "multiprocessing.resource_tracker"
"""The module of a helper process of `multiprocessing`, which runs no code under test."""


class Processes:
    """Records the trace of this process. A child process writes to the log of the plan when it begins and when it ends.

    If another process kills a child, its trace is lost and the trace of the worker becomes `unsure`, unless the child
    has called `leave_record` before.
    """

    def __init__(self, hook: ImportHook, files: FilesRead, *, child: bool) -> None:
        self._hook, self._files = hook, files
        self._id, self._started, self._foreign = "", 0, ""
        self._used: list[ProcessTrace] = []
        sys.addaudithook(self._record_event)
        _count_fork_exec(self._count_program)
        os.register_at_fork(after_in_child=self._begin)
        _at_every_exit(self.end)
        if child:
            self._begin()

    def trace(self) -> ProcessTrace:
        """Return the merged trace of this process, its ended children, and the processes passed to `use`."""
        return union([trace_of([self._entry(), *entries(self._hook.plan.log)]), *self._used])

    def use(self, other: ProcessTrace) -> None:
        """Record that this process uses a result of another process, whose trace at that moment is `other`."""
        # The code that the other process ran is a dependency (`ran`), not coverage (`seen`), of this process.
        self._used.append(replace(other, seen=frozenset(), ran=other.ran | other.seen))

    def end(self) -> None:
        """Write the trace of a child process to the log, at its exit or before it kills itself; else do nothing."""
        if self._id:
            self._write(self._entry())

    def _record_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an audit event: a process is started, this process kills itself, or the code of a function is read."""
        if event == "os.fork":
            self._started += 1
        elif event == "subprocess.Popen":
            self._count_program([os.fsdecode(arguments[0] or arguments[1][0])])
        elif event == "os.kill" and arguments[0] == os.getpid():
            self.end()
        # `subprocess` of Python 3.13 calls os.posix_spawn, but raises the event subprocess.Popen first.
        elif event in START_EVENTS and not _of_subprocess(sys._getframe(1)):
            self._foreign = self._foreign or event
        elif event == "object.__getattr__" and arguments[1] == "__code__" and isinstance(arguments[0], FunctionType):
            self._record_code(arguments[0])

    def _record_code(self, function: FunctionType) -> None:
        """Record a function whose `__code__` is read: a result may depend on the function although it does not run."""
        reader = sys._getframe(2).f_code.co_filename
        if not reader.startswith((*HARMLESS, *INTERMEDIARIES)) and not is_installed(reader):
            ran.add(f"{function.__module__}:{function.__qualname__.replace('.<locals>', '')}")

    def _count_program(self, command: list[str]) -> None:
        """Count a started program, and record its name if it is not Python and so writes no trace."""
        if not any(TRACKER in word for word in command):
            self._started += 1
            if not Path(command[0]).name.startswith("python"):
                self._foreign = self._foreign or Path(command[0]).name

    def _begin(self) -> None:
        self._id, self._started, self._foreign = uuid.uuid4().hex, 0, ""
        self._write({"id": self._id})

    def _entry(self) -> dict[str, object]:
        """Return the trace of this process as a line of the log."""
        hook, files = self._hook, self._files
        read, missing = files.opened()
        return {
            "id": self._id,
            "seen": sorted(seen),
            "ran": sorted(ran),
            "loaded": hook.loaded,
            "asked": sorted(hook.asked),
            "looked": sorted({*files.probed(), *missing}),
            "files": read,
            "texts": files.texts(),
            "listed": files.listed(),
            "metadata": files.metadata(),
            "searched": files.searched(),
            "outside": files.outside(),
            "readers": [name for name in READ_DOCS if name in sys.modules],
            "applied": hook.applied,
            "broken": hook.broken,
            "started": self._started,
            "foreign": self._foreign,
        }

    def _write(self, entry: Mapping[str, object]) -> None:
        log = os.open(self._hook.plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(log, (json.dumps(entry) + "\n").encode())  # one call, so that lines of two children are not mixed
        os.close(log)


_recorders: list[Processes] = []
"""The recorders that `watch` has installed in this process. The last one is in use."""


def watch(plan: Plan, root: Path, *, child: bool = False) -> tuple[ImportHook, Processes]:
    """Install the import hook in this process and record its trace. Raise BrokenMutant like `install`."""
    # The log is in the folder of the task, and this folder is in the scratch folder.
    files = FilesRead(root, Path(plan.log).parent.parent)
    hook = install(plan)
    _recorders.append(Processes(hook, files, child=child))
    return hook, _recorders[-1]


def current_trace() -> ProcessTrace | None:
    """Return the trace of this process and its ended children until now; None if no trace is recorded."""
    return _recorders[-1].trace() if _recorders else None


def use(other: ProcessTrace | None) -> None:
    """Record that this process uses a result of another process, whose trace at that moment is `other`."""
    if _recorders and other is not None:
        _recorders[-1].use(other)


def leave_record() -> None:
    """Write the trace of this child process to the log now, since it may be killed before it exits."""
    if _recorders:
        _recorders[-1].end()


def install_from_environment() -> None:
    """Install the import hook with the plan of the parent process, if the environment has a plan."""
    text = os.environ.get(VARIABLE)
    if text and not any(TRACKER in word for word in sys.orig_argv):
        plan = Plan.from_json(text)
        if plan.log:
            watch(plan, Path(plan.root), child=True)
        else:
            install(plan)


def _of_subprocess(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith("/subprocess.py")


def _count_fork_exec(spawned: Callable[[list[str]], object]) -> None:
    """Call `spawned` with the command of each process that `multiprocessing` spawns: these raise no audit event."""
    import _posixsubprocess

    fork_exec = _posixsubprocess.fork_exec

    def counted(arguments: Any, *rest: Any) -> Any:
        if not _of_subprocess(sys._getframe(1)):  # processes of `subprocess` are recorded by an audit event
            spawned([os.fsdecode(word) for word in arguments])
        return fork_exec(arguments, *rest)

    _posixsubprocess.fork_exec = counted


def _at_every_exit(end: Callable[[], object]) -> None:
    """Call `end` at every exit of this process, except if it is killed. `multiprocessing` exits by `os._exit`."""
    leave = os._exit

    def recorded_exit(status: int) -> NoReturn:
        try:
            end()
        finally:
            leave(status)

    atexit.register(end)
    os._exit = recorded_exit
