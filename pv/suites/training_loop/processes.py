"""Runs in other processes: in several ranks, or killed in the middle of a save."""

import builtins
import io
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any, NoReturn, cast
from unittest import SkipTest

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported at run time only
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

from pv.instrument import processes
from pv.instrument.coverage import seen
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.run import Run, observe

File = str | os.PathLike[str] | IO[bytes]
"""A file that `torch.save` writes."""

# Ranks.

LIMIT_S = 600.0
"""Longest time that the processes may take, imports included."""
FAILED, SKIPPED = 1, 77
"""Exit codes of a rank that has raised an exception, and SkipTest."""


class Template:
    """A forked process that forks the ranks of every task.

    Create it before anything has run: torch may refuse to compute gradients in a fork of a process that has computed
    some.
    """

    def __init__(self) -> None:
        self._ours, theirs = Pipe()
        if not os.fork():
            self._ours.close()
            _serve(theirs)
        theirs.close()

    def run(self, directory: Path, size: int, environment: Mapping[str, str]) -> int | None:
        """Return the exit status of the ranks of a task; None if it has not ended at its limit."""
        self._ours.send((directory, size, environment))
        status: int | None = self._ours.recv() if self._ours.poll(LIMIT_S) else None
        return status


def _serve(tasks: Connection) -> NoReturn:
    """Fork a process for each task. Exit when the other end of the connection is closed."""
    processes.leave_record()
    with suppress(EOFError):
        while True:
            directory, size, environment = tasks.recv()
            if child := os.fork():
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                processes.leave_record()
                tasks.send(status)
            else:
                _start(directory, size, environment)
    os._exit(0)


def _start(directory: Path, size: int, environment: Mapping[str, str]) -> NoReturn:
    status = 1
    try:
        with _log(directory).open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.environ |= environment
        _main(directory, size)
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        os._exit(status)


def run_ranks(trainer: Trainer, job: Job, size: int, template: Template | None = None) -> list[Run]:
    """Return the run of each rank. template: forks them; if they fail, a fresh interpreter runs them again.

    Raise RuntimeError with the output of a rank that failed, and SkipTest if a rank has raised it, or if the trainer
    cannot be sent to a process.
    """
    (job.directory / "task").write_bytes(_packed(trainer, job))
    status = _status(template.run, job.directory, size) if template is not None else FAILED
    # A fork inherits threads and locks in an undefined state, so a failure there may not be the trainer's.
    if status not in (0, SKIPPED, None):
        status = _status(_run_in_interpreter, job.directory, size)
    if status is None:
        raise RuntimeError(f"{size} ranks have not ended after {LIMIT_S:g} s")
    if status == SKIPPED:
        raise SkipTest(_skipped(job.directory).read_text(encoding="utf-8"))
    if status:
        failed = _failed(job.directory)
        raise RuntimeError((failed if failed.exists() else _log(job.directory)).read_text(errors="replace")[-2000:])
    return [_answered(job.directory, rank) for rank in range(size)]


def _status(run: Callable[[Path, int, Mapping[str, str]], int | None], directory: Path, size: int) -> int | None:
    # This process holds the store, so that no port is chosen that another might take.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return run(directory, size, _environment(size, store.port))


def _run_in_interpreter(directory: Path, size: int, environment: Mapping[str, str]) -> int | None:
    """Return the exit status of a fresh interpreter that forks the ranks; None if it has not ended at its limit."""
    command = [sys.executable, "-m", "pv.suites.training_loop.processes", str(directory), str(size)]
    with _log(directory).open("wb") as output:
        started = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        return started.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        started.kill()  # torch has asked the kernel to interrupt its forks then
        started.wait()


def _answered(directory: Path, rank: int) -> Run:
    """Return the run of a rank, and count the functions that it reached as reached by this process."""
    # Coverage of the ranks counts for the claim that started them.
    run, reached = pickle.loads(_answer(directory, rank).read_bytes())
    seen.update(reached)
    return cast(Run, run)


def _packed(trainer: Trainer, job: Job) -> bytes:
    try:
        return pickle.dumps((trainer, job))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SkipTest(f"the adapter cannot be sent to another process, so define it in a module: {error}") from error


def _environment(size: int, port: int) -> dict[str, str]:
    # The first of these entries records what a child process reaches, and plants mutants in it.
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in (*inherited, *sys.path)),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # As `torchrun` does it: a rank that made the store itself could find its port taken.
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # env:// connects to the store of the parent
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": "1",
    }


def _log(directory: Path) -> Path:
    return directory / "ranks.log"


def _answer(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank}.run"


def _skipped(directory: Path) -> Path:
    return directory / "skipped"


def _failed(directory: Path) -> Path:
    return directory / "failed"


def _error(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank}.error"


def _described(error: Exception) -> str:
    """Return an exception, and the innermost line of the user's code where it was raised."""
    shown = "".join(traceback.format_exception_only(error)).strip()
    users = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_of_others(frame.filename)]
    places = (f"\nat {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in users[-1:])
    return shown + "".join(places)


def _is_of_others(file: str) -> bool:
    return any(part in file for part in ("/site-packages/", "/dist-packages/", "/pv/suites/", "/lib/python", "<"))


def _rank(rank: int, trainer: Trainer, job: Job) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends a rank that waits for another when the interpreter is gone
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        run = observe(trainer, job)
    except SkipTest as error:
        _skipped(job.directory).write_text(str(error), encoding="utf-8")
        os._exit(SKIPPED)  # without waiting for the other ranks, which may wait for this one
    except Exception as error:
        _error(job.directory, rank).write_text(_described(error), encoding="utf-8")
        raise
    _answer(job.directory, rank).write_bytes(pickle.dumps((run, sorted(seen))))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _main(directory: Path, size: int) -> None:
    import torch._dynamo  # the first step of an optimizer imports it, at two seconds in each rank

    torch.set_num_threads(1)
    task = pickle.loads((directory / "task").read_bytes())
    try:
        start_processes(_rank, task, nprocs=size, start_method="fork")
    except (ProcessRaisedException, ProcessExitedException) as error:
        if isinstance(error, ProcessExitedException) and error.exit_code == SKIPPED:
            sys.exit(SKIPPED)
        error_file = _error(directory, error.error_index)
        shown = error_file.read_text(encoding="utf-8") if error_file.exists() else error.msg
        _failed(directory).write_text(f"rank {error.error_index} of {size}: {shown}", encoding="utf-8")
        sys.exit(FAILED)


# Runs that are killed.

CHANGES = frozenset({"open", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.truncate"})
"""Audit events of operations that can change files; `open` counts only for writing."""
KILLED_LIMIT_S, IDLE_S = 120.0, 3.0
"""How long a run may take, and how long it may use no CPU time."""
FINISHED = 7
"""The exit status of a run that was not killed."""


def killed(run: Callable[[], object], directory: Path, operation: int) -> bool:
    """Run in a fork that is killed at an operation, from 0, on files below a directory; False if it had fewer.

    Raise SkipTest if the run fails there, or hangs: the threads that an earlier run has started, as those of a process
    group, are not in the fork.
    """
    # In a fork: the process that runs the other claims must survive.
    child = os.fork()
    if not child:
        status = 1
        try:
            _kill_at(directory, operation)
            run()
            status = FINISHED
        finally:
            os._exit(status)
    ended = _ended(child)
    if ended not in (FINISHED, -signal.SIGKILL):
        outcome = "hangs" if ended is None else f"ends with status {ended}"
        raise SkipTest(
            f"the run is killed in a fork of a process that has run it before, and there it {outcome} by itself"
        )
    return ended != FINISHED


def _kill_at(directory: Path, operation: int) -> None:
    """Kill this process at an operation: before it, once a file is open, or when `torch.save` has written a half."""
    done, prefix = 0, os.fspath(directory)

    def is_due() -> bool:
        nonlocal done
        done += 1
        return done == operation + 1

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if event in CHANGES and _is_below(prefix, event, arguments) and is_due():
            _kill()

    def save(state: object, file: File, *arguments: object, **options: object) -> None:
        name = file if isinstance(file, os.PathLike) else getattr(file, "name", file)  # a path has a `name`, too
        if isinstance(name, str | os.PathLike) and os.fspath(name).startswith(prefix) and is_due():
            _write_half(state, file)
            _kill()
        whole(state, file, *arguments, **options)

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file_object = plain(file, mode, *arguments, **options)
        changes = isinstance(file, str | os.PathLike) and not {*"wax+"}.isdisjoint(mode)
        if changes and os.fspath(file).startswith(prefix) and is_due():
            _kill()
        return file_object

    # torch.save is replaced in both modules that export it, open in both as well.
    whole: Callable[..., None] = torch.save
    plain = open
    vars(torch)["save"] = vars(torch.serialization)["save"] = save
    builtins.open = io.open = opened
    sys.addaudithook(count)


def _write_half(state: object, file: File) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    half = buffer.getvalue()[: buffer.tell() // 2]
    if isinstance(file, str | os.PathLike):
        Path(file).write_bytes(half)
    else:
        file.write(half)
        file.flush()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _is_below(prefix: str, event: str, arguments: tuple[Any, ...]) -> bool:
    path = arguments[0]
    if isinstance(path, int) or not os.fsdecode(path).startswith(prefix):
        return False
    return event != "open" or bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))


def _ended(child: int) -> int | None:
    """Return the exit status of a child, negative for a signal; None for one that hangs, which is killed."""
    began = active = time.monotonic()
    used = -1.0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        now, before, used = time.monotonic(), used, _used(child)
        # A process that uses no CPU time for 3 s waits for a thread that the fork does not have.
        active = now if used != before else active
        if now - active > IDLE_S or now - began > KILLED_LIMIT_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


def _used(process: int) -> float:
    """Return the CPU time of a process in ticks; without /proc the current time, so that it counts as active."""
    try:
        times = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:15]
    except OSError:
        return time.monotonic()
    return float(sum(map(int, times)))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
