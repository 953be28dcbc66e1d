"""Run a job in several processes that reach each other through gloo.

They are forks of one process that has imported the trainer and run nothing: a fresh interpreter, or a `Template`.
"""

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NoReturn, cast
from unittest import SkipTest

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported at run time only
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

from pv.instrument import processes
from pv.instrument.coverage import seen
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.run import Run, observe

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
    command = [sys.executable, "-m", "pv.suites.training_loop.ranks", str(directory), str(size)]
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


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
