"""Runs a job in several processes that reach each other through gloo.

They are forks of one fresh interpreter, which has imported the trainer and run nothing.
"""

import os
import pickle
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import cast
from unittest import SkipTest

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported at run time only
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

from pv.instrument.coverage import seen
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.run import Run, observe

LIMIT_S = 600.0
"""Longest time that the processes may take, imports included."""
SKIPPED = 77
"""Exit code of a rank that has raised SkipTest."""


def run_ranks(trainer: Trainer, job: Job, size: int) -> list[Run]:
    """Return the run of each rank.

    Raise RuntimeError with the output of a rank that failed, and SkipTest if a rank has raised it, or if the trainer
    cannot be sent to a process.
    """
    (job.directory / "task").write_bytes(_packed(trainer, job))
    # The parent holds the store, so that no port is chosen that another process might take.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    command = [sys.executable, "-m", "pv.suites.training_loop.ranks", str(job.directory), str(size)]
    log = job.directory / "ranks.log"
    with log.open("wb") as output:
        started = subprocess.Popen(command, env=_environment(size, store.port), stdout=output, stderr=subprocess.STDOUT)
    try:
        status = started.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{size} ranks have not ended after {LIMIT_S:g} s") from None
    finally:
        started.kill()  # torch has asked the kernel to interrupt its forks then
        started.wait()
    if status == SKIPPED:
        raise SkipTest(_skipped(job.directory).read_text(encoding="utf-8"))
    if status:
        failed = _failed(job.directory)
        raise RuntimeError((failed if failed.exists() else log).read_text(errors="replace")[-2000:])
    return [_answered(job.directory, rank) for rank in range(size)]


def _answered(directory: Path, rank: int) -> Run:
    """Return the run of a rank, and count the functions that it reached as reached by this process."""
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
    users = [each for each in traceback.extract_tb(error.__traceback__) if not _is_of_others(each.filename)]
    places = (f"\nat {each.filename}:{each.lineno} in {each.name}: {each.line}" for each in users[-1:])
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
        own = _error(directory, error.error_index)
        shown = own.read_text(encoding="utf-8") if own.exists() else error.msg
        _failed(directory).write_text(f"rank {error.error_index} of {size}: {shown}", encoding="utf-8")
        sys.exit(1)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
