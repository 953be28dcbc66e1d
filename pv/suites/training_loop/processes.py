"""Run jobs in other processes: in several ranks, or in a fork that is killed while it changes files."""

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
"""A path, or an open file, that `torch.save` writes to."""

# Ranks.

RANKS_LIMIT_S = 600.0
"""Longest time in seconds that the ranks may take, imports included."""
FAILED, SKIPPED = 1, 77
"""Exit codes of a rank that has raised an exception other than SkipTest, and of a rank that has raised SkipTest."""


class ForkServer:
    """A process, forked from this one, that forks the ranks of every task.

    Create the fork server before this process runs a job: torch may refuse to compute gradients in a fork of a process
    that has computed gradients.
    """

    def __init__(self) -> None:
        self._is_late = False
        """Whether a task has not ended in time, so that the server still waits for its end."""
        self._connection, server_end = Pipe()
        if not os.fork():
            self._connection.close()
            _serve(server_end)
        server_end.close()

    def run(self, directory: Path, size: int, environment: Mapping[str, str]) -> int | None:
        """Run a task in several ranks.

        Args:
            directory: The directory that contains the task, in the file `task`.
            size: The number of ranks.
            environment: The environment variables of the ranks.

        Returns:
            The exit status; None if the ranks have not ended after `RANKS_LIMIT_S`, and `FAILED` in all later calls.
        """
        if self._is_late:
            return FAILED
        self._connection.send((directory, size, environment))
        self._is_late = not self._connection.poll(RANKS_LIMIT_S)
        status: int | None = None if self._is_late else self._connection.recv()
        return status


def _serve(tasks: Connection) -> NoReturn:
    """Fork a process for each task. Exit when the other end of the connection is closed, or on any other error."""
    processes.leave_record()
    try:
        while True:
            directory, size, environment = tasks.recv()
            if child := os.fork():
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                processes.leave_record()
                tasks.send(status)
            else:
                _run_task(directory, size, environment)
    finally:  # never return to the code of the parent process
        os._exit(0)


def _run_task(directory: Path, size: int, environment: Mapping[str, str]) -> NoReturn:
    """Run the ranks of a task as children of this process, and exit with their status."""
    status = 1
    try:
        with _log_file(directory).open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.environ |= environment
        _main(directory, size)
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        os._exit(status)


def run_ranks(trainer: Trainer, job: Job, size: int, fork_server: ForkServer | None = None) -> list[Run]:
    """Run a job in several processes.

    Args:
        trainer: The adapter; it is pickled.
        job: The job. Its directory gets the task, the output and the results of the ranks.
        size: The number of processes.
        fork_server: The process that forks the ranks; None for a fresh interpreter. If the ranks of a fork server fail,
            a fresh interpreter runs the job again.

    Returns:
        The run of each rank.

    Raises:
        RuntimeError: A rank failed, or the ranks have not ended after `RANKS_LIMIT_S`. If a rank failed, the message is
            its exception or the output of the ranks.
        SkipTest: A rank has raised SkipTest, or the trainer cannot be pickled.
    """
    (job.directory / "task").write_bytes(_pickle_task(trainer, job))
    status = _start_ranks(fork_server.run, job.directory, size) if fork_server is not None else FAILED
    # A fork inherits threads and locks in an undefined state, so its failure may not be the fault of the trainer.
    if status not in (0, SKIPPED, None):
        status = _start_ranks(_run_in_interpreter, job.directory, size)
    if status is None:
        raise RuntimeError(f"{size} ranks have not ended after {RANKS_LIMIT_S:g} s")
    if status == SKIPPED:
        raise SkipTest(_skip_file(job.directory).read_text(encoding="utf-8"))
    if status:
        failure = _failure_file(job.directory)
        shown = failure if failure.exists() else _log_file(job.directory)
        raise RuntimeError(shown.read_text(errors="replace")[-2000:])
    return [_read_run(job.directory, rank) for rank in range(size)]


def _start_ranks(run: Callable[[Path, int, Mapping[str, str]], int | None], directory: Path, size: int) -> int | None:
    """Call `run` with a new store of torch.distributed for the rendezvous of the ranks, and return the exit status."""
    # This process opens the store itself. If it only chose a free port, another process could take the port meanwhile.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return run(directory, size, _environment(size, store.port))


def _run_in_interpreter(directory: Path, size: int, environment: Mapping[str, str]) -> int | None:
    """Run the ranks in forks of a fresh interpreter, and return its exit status; None after `RANKS_LIMIT_S`."""
    command = [sys.executable, "-m", "pv.suites.training_loop.processes", str(directory), str(size)]
    with _log_file(directory).open("wb") as output:
        interpreter = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        return interpreter.wait(RANKS_LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        interpreter.kill()  # torch has set PR_SET_PDEATHSIG in its forks, so the kernel interrupts them
        interpreter.wait()


def _read_run(directory: Path, rank: int) -> Run:
    """Return the stored run of a rank, and record that this process depends on the functions that the rank reached."""
    run, reached = pickle.loads(_run_file(directory, rank).read_bytes())
    seen.update(reached)
    return cast(Run, run)


def _pickle_task(trainer: Trainer, job: Job) -> bytes:
    """Return an adapter and a job as bytes. Raise SkipTest if the adapter cannot be pickled."""
    try:
        return pickle.dumps((trainer, job))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SkipTest(f"the adapter cannot be sent to another process, so define it in a module: {error}") from error


def _environment(size: int, port: int) -> dict[str, str]:
    """Return the environment of the ranks, in which torch.distributed finds the store at a port."""
    # The first entry of PYTHONPATH loads the import hook, which records coverage in the child and plants mutants.
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in (*inherited, *sys.path)),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # As under torchrun, these variables make the ranks connect to the store of the parent process with env://. If a
        # rank created the store, another process could have taken the port.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": "1",
    }


def _log_file(directory: Path) -> Path:
    return directory / "ranks.log"


def _run_file(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank}.run"


def _skip_file(directory: Path) -> Path:
    return directory / "skipped"


def _failure_file(directory: Path) -> Path:
    return directory / "failed"


def _error_file(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank}.error"


def _format_error(error: Exception) -> str:
    """Return the text of an exception, with the innermost line of the user's code in its traceback."""
    shown = "".join(traceback.format_exception_only(error)).strip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library_code(frame.filename)]
    places = (f"\nat {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-1:])
    return shown + "".join(places)


def _is_library_code(file: str) -> bool:
    """Return whether a file of a traceback belongs to a library, to Python, or to this suite."""
    return any(part in file for part in ("/site-packages/", "/dist-packages/", "/pv/suites/", "/lib/python", "<"))


def _run_rank(rank: int, trainer: Trainer, job: Job) -> None:
    """Run the job as one rank, and write the run, the error or the reason to skip to the directory of the job."""
    # With the default handler, SIGINT ends a rank that waits for another rank, even if the parent process has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        run = observe(trainer, job)
    except SkipTest as error:
        _skip_file(job.directory).write_text(str(error), encoding="utf-8")
        os._exit(SKIPPED)  # do not wait for the other ranks, which may wait for this one
    except Exception as error:
        _error_file(job.directory, rank).write_text(_format_error(error), encoding="utf-8")
        raise
    _run_file(job.directory, rank).write_bytes(pickle.dumps((run, sorted(seen))))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _main(directory: Path, size: int) -> None:
    """Fork the ranks of the task in a directory, and wait for them.

    Raises:
        SystemExit: A rank has exited with `SKIPPED`, or has failed; the code is `SKIPPED` or `FAILED`.
    """
    # The first step of an optimizer imports this module. An import before the fork saves two seconds in each rank.
    import torch._dynamo

    torch.set_num_threads(1)
    task = pickle.loads((directory / "task").read_bytes())
    try:
        start_processes(_run_rank, task, nprocs=size, start_method="fork")
    except (ProcessRaisedException, ProcessExitedException) as error:
        if isinstance(error, ProcessExitedException) and error.exit_code == SKIPPED:
            sys.exit(SKIPPED)
        error_file = _error_file(directory, error.error_index)
        shown = error_file.read_text(encoding="utf-8") if error_file.exists() else error.msg
        _failure_file(directory).write_text(f"rank {error.error_index} of {size}: {shown}", encoding="utf-8")
        sys.exit(FAILED)


# Runs that are killed.

CHANGES = frozenset({"open", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.truncate"})
"""Audit events of operations that can change files; `open` counts only for writing."""
KILLED_LIMIT_S, IDLE_S = 120.0, 3.0
"""Limits in seconds for a fork that will be killed: its total time, and the time during which it uses no CPU time."""
FINISHED = 7
"""The exit status of a fork whose run ended before it was killed."""


def run_and_kill(run: Callable[[], object], directory: Path, operation: int) -> bool:
    """Call a function in a fork of this process, and kill the fork at an operation on files below a directory.

    Args:
        run: The function.
        directory: The directory.
        operation: The number of the operation, from 0.

    Returns:
        Whether the fork was killed; False if the function finished with fewer operations.

    Raises:
        SkipTest: The function raises or hangs in the fork. Threads that an earlier run has started, such as the threads
            of a process group, do not exist in the fork.
    """
    # The function runs in a fork, since the process that runs the other claims must survive.
    child = os.fork()
    if not child:
        status = 1
        try:
            _kill_at(directory, operation)
            run()
            status = FINISHED
        finally:
            os._exit(status)
    ended = _wait(child)
    if ended not in (FINISHED, -signal.SIGKILL):
        outcome = "hangs" if ended is None else f"ends with status {ended}"
        raise SkipTest(f"in a fork of a process that has run the job before, the run {outcome} before it is killed")
    return ended != FINISHED


def _kill_at(directory: Path, operation: int) -> None:
    """Install hooks that kill this process at an operation on files below a directory.

    An operation is an audit event of `CHANGES`, an `open` for writing, or a `torch.save`. Operations are counted from
    0. The process is killed before the event, right after the `open`, or when half of the data is saved.
    """
    count, prefix = -1, os.fspath(directory)

    def is_due() -> bool:
        """Count an operation, and return whether the process must be killed at this operation."""
        nonlocal count
        count += 1
        return count == operation

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event in CHANGES and _is_below(prefix, event, arguments) and is_due():
            _kill()

    def save(state: object, file: File, *arguments: object, **options: object) -> None:
        name = file if isinstance(file, os.PathLike) else getattr(file, "name", file)  # a path has a `name`, too
        if isinstance(name, str | os.PathLike) and os.fspath(name).startswith(prefix) and is_due():
            _write_half(state, file)
            _kill()
        original_save(state, file, *arguments, **options)

    def open_and_count(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file_object = original_open(file, mode, *arguments, **options)
        changes = isinstance(file, str | os.PathLike) and not {*"wax+"}.isdisjoint(mode)
        if changes and os.fspath(file).startswith(prefix) and is_due():
            _kill()
        return file_object

    # Two modules export torch.save, and two export open. Replace all four attributes.
    original_save: Callable[..., None] = torch.save
    original_open = open
    vars(torch)["save"] = vars(torch.serialization)["save"] = save
    builtins.open = io.open = open_and_count
    sys.addaudithook(audit)


def _write_half(state: object, file: File) -> None:
    """Write the first half of the bytes of `torch.save` to a path or an open file."""
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
    """Return whether an audit event changes a path that starts with a prefix."""
    paths = [os.fsdecode(path) for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike)]
    if event == "open":  # the arguments are path, mode and flags
        return paths[0].startswith(prefix) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR)) if paths else False
    return any(path.startswith(prefix) for path in paths)


def _wait(child: int) -> int | None:
    """Wait for a child, and return its exit status; a negative status is a signal.

    If the child hangs, kill it and return None.
    """
    began = active = time.monotonic()
    used = -1.0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        now, before, used = time.monotonic(), used, _cpu_ticks(child)
        # A process that uses no CPU time for `IDLE_S` waits for a thread that the fork does not have.
        active = now if used != before else active
        if now - active > IDLE_S or now - began > KILLED_LIMIT_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


def _cpu_ticks(process: int) -> float:
    """Return the CPU time of a process in ticks. Without /proc, return the time, so the process counts as active."""
    try:
        times = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:15]
    except OSError:
        return time.monotonic()
    return float(sum(map(int, times)))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
