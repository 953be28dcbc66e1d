"""Forks of this process, which have loaded torch and the trainer: a start takes milliseconds instead of seconds."""

import hashlib
import importlib.util
import json
import os
import runpy
import signal
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from tempfile import TemporaryFile

import torch
import torch._dynamo  # the first optimizer of a process imports it

from pv.observe.launch import SITE
from reference_trainer import interrupts
from reference_trainer.__main__ import run

LIMIT_S = 300
"""Seconds after which the kernel ends a fork with SIGALRM, so that one that hangs fails its test."""


def in_child(work: Callable[[], object]) -> int:
    """Return the exit code of `work` in a fork, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])


def fork(work: Callable[[], object]) -> int:
    """Return the number of a fork that exits with what `work` returns, or with 0 if that is no number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_S)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
                signal.signal(number, signal.SIG_DFL)
            interrupts.exit_at_once()
            result = work()
            code = result if isinstance(result, int) else 0
        except BaseException as error:  # a fork never returns
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return pid


class Fork:
    """A fork of this process, with what is used of `subprocess.Popen`."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = fork(work)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int | None:
        if timeout is None:
            return self._ended(0)
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


class Process(Fork):
    """`reference-trainer`, or another command, in a fork whose output is read from pipes."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        start: Callable[[], object] = run,
    ) -> None:
        pipes = [os.pipe(), os.pipe()]
        super().__init__(partial(_command, arguments, folder, environment, (pipes[0][1], pipes[1][1]), start))
        self.stdout, self.stderr = (os.fdopen(end) for end, _ in pipes)
        for _, end in pipes:
            os.close(end)


class Interpreter(Fork):
    """`python [-u] SCRIPT` or `python [-u] -m MODULE` in a fork, in the place of `subprocess.Popen`."""

    def __init__(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None = None,
        stdout: None = None,
        stderr: None = None,
        start_new_session: bool = False,
    ) -> None:
        assert args[0] == sys.executable and stdout is stderr is None, args
        words = [str(word) for word in args[1:] if word != "-u"]

        def work() -> int:
            if start_new_session:
                os.setsid()
            arguments = words[2:] if words[0] == "-m" else words[1:]
            # `os._exit` ends the fork: functions of `atexit` do not run, and the observer finishes its trace there.
            return _command(arguments, cwd or Path.cwd(), env, (1, 2), partial(_program, words))

        super().__init__(work)


def _program(words: Sequence[str]) -> None:
    """Run a script or a module as its own process would, observed if the environment says so."""
    if "PV_OBSERVE_TRACE" in os.environ:
        runpy.run_path(str(SITE / "sitecustomize.py"))["_load_observer"]()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-m":
        spec = importlib.util.find_spec(words[1])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{words[1]}.__main__")
        assert spec is not None and spec.origin is not None, words
        main.__spec__, main.__package__, file, first = spec, spec.parent, Path(spec.origin), Path.cwd()
    else:
        file = Path(words[0]).absolute()
        first = file.parent
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            signal.signal(number, signal.SIG_DFL)
    sys.path.insert(0, str(first))
    main.__file__ = sys.argv[0] = str(file)
    # Not by `runpy`: it would delete the names of a script before its trace is finished, and does not know the loader
    # by which pytest loads an installed package.
    exec(compile(file.read_bytes(), file, "exec"), vars(main))


def is_complete(out: Path) -> bool:
    """Return whether a directory has a manifest; assert that its digests match its files."""
    if not (out / "manifest.json").exists():
        return False
    recorded = json.loads((out / "manifest.json").read_text())["sha256"]
    assert recorded == {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in recorded}, out
    return True


def on_terminal(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], terminal: int) -> int:
    """Start `reference-trainer` on a terminal, in a session of its own; return its number."""

    def work() -> int:
        os.setsid()
        os.dup2(terminal, 0)
        return _command(arguments, folder, environment, (terminal, terminal))

    return fork(work)


def python(*arguments: str, cwd: Path) -> "CompletedProcess[str]":
    """Run a script, or the trainer after -m, in a fork."""
    is_trainer = arguments[:2] == ("-m", "reference_trainer")

    def start() -> object:
        sys.path.insert(0, str(cwd))
        # pytest loads the trainer, if it is installed, by a loader that `runpy` does not know.
        return run() if is_trainer else runpy.run_path(arguments[0], run_name="__main__")

    return command(arguments[1 + is_trainer :], cwd, os.environ, start)


def command(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], start: Callable[[], object] = run
) -> "CompletedProcess[str]":
    """Run `reference-trainer` in a fork, with standard streams, folder and environment of its own."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as complaints:
        streams = (out.fileno(), complaints.fileno())
        code = in_child(partial(_command, arguments, folder, environment, streams, start))
        out.seek(0)
        complaints.seek(0)
        return CompletedProcess(arguments, code, out.read(), complaints.read())


def _command(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    streams: tuple[int, int],
    start: Callable[[], object] = run,
) -> int:
    torch.set_num_threads(1)  # the pool of the parent has no threads here
    os.dup2(streams[0], 1)
    os.dup2(streams[1], 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["reference-trainer", *arguments]
    try:
        start()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
