"""Run a function on real ranks: forked processes that form one gloo group, on this machine and on the CPU.

A rank is a fork, so it runs the subject as loaded in this process, mutants included, and `work` may be any closure. A
fork starts in milliseconds, a new interpreter in seconds. If torch sees a CUDA device, call `run_ranks` before the
first backward pass of the process: autograd refuses to run in a fork of a process that has started its device threads.
"""

import ctypes
import os
import pickle
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch._dynamo  # DDP imports it when it is constructed: seconds, here once instead of in every rank
import torch.distributed as dist

__all__ = ["RankError", "run_ranks"]

Result = TypeVar("Result")

FALSIFIERS = Path(__file__).parents[1]
GRACE_S = 2.0
"""Seconds for ranks that have finished to write their coverage and exit."""


class RankError(Exception):
    """A rank crashed, or the attack itself failed in it."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """An exception that `work` raised in a rank.

    Attributes:
        at: The time on the monotonic clock.
        error: The exception; None if it cannot be pickled.
        text: The formatted traceback.
        by_subject: Whether the code under attack raised it.
    """

    at: float
    error: BaseException | None
    text: str
    by_subject: bool


@dataclass(slots=True)
class _Rank:
    """A running rank: its process, and the pipe on which its report comes as a pickle, (failure, result)."""

    pid: int
    pipe: int
    received: bytearray = field(default_factory=bytearray)


def run_ranks(
    world_size: int,
    work: Callable[[int], Result],
    *,
    limit_s: float = 60.0,
    served: AbstractContextManager[object] | None = None,
) -> list[Result]:
    """Call work(rank) in `world_size` processes at the same time, and return the results by rank.

    A rank has one thread, and the random state of this process. All processes have ended when this function returns.

    Args:
        world_size: The number of ranks.
        work: The function. Its results are pickled.
        limit_s: The time limit in seconds; a collective gives up after half of this time.
        served: None for a gloo process group as the default group. With a context manager, `work` creates the group
            itself, as a program under a launcher does, and a rank ends as soon as it has its result. The context is
            entered after all ranks are forked, since a fork would keep the locks that its threads hold.

    Raises:
        AssertionError: The code under attack raised an error, or a rank has no result in time.
        RankError: A rank crashed.
        Exception: The first exception of `work` otherwise, with the traceback of the rank as a note.
    """
    # Ranks read from this pipe before they exit; they wait until this process closes it.
    leave_reading, leave_writing = os.pipe()
    ranks: list[_Rank] = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            for rank in range(world_size):
                store = f"{directory}/store" if served is None else None
                ranks.append(_fork(rank, world_size, work, store, limit_s, leave_reading, leave_writing))
            with served or nullcontext():
                return _results(ranks, time.monotonic() + limit_s)
        finally:
            os.close(leave_reading)
            os.close(leave_writing)  # every rank waits for this, so that none closes a connection that others need
            _end(ranks)


def _fork(
    rank: int,
    world_size: int,
    work: Callable[[int], Any],
    store: str | None,
    limit_s: float,
    leave: int,
    leave_writing: int,
) -> _Rank:
    """Fork a rank; in the fork, write the report of `work`, wait until `leave` is closed, and exit."""
    reading, writing = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid:
        os.close(writing)
        return _Rank(pid, reading)
    try:
        _die_with(parent)
        os.close(leave_writing)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(_report(rank, world_size, work, store, limit_s))
        if store is not None:
            os.read(leave, 1)
    finally:
        os._exit(0)  # looked up when it is called: the import hook replaces it to write the coverage


def _die_with(parent: int) -> None:
    """End this process by SIGKILL when its parent ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _report(rank: int, world_size: int, work: Callable[[int], Any], store: str | None, limit_s: float) -> bytes:
    """Call `work` in this rank, and return the pickled pair of a failure or None, and the result."""
    try:
        torch.set_num_threads(1)  # a fork has no threads of the pool that its parent may have used, and would wait
        if store is not None:
            shared = dist.FileStore(store, world_size)  # type: ignore[attr-defined]  # public, but mypy sees no export
            timeout = timedelta(seconds=limit_s / 2)
            dist.init_process_group("gloo", store=shared, rank=rank, world_size=world_size, timeout=timeout)
        return pickle.dumps((None, work(rank)))
    except BaseException as error:  # a rank reports every exception to its parent
        failure = _Failure(time.monotonic(), error, _text(error), _raised_by_subject(error))
    with suppress(Exception):  # an exception that can't be pickled
        pickle.loads(report := pickle.dumps((failure, None)))
        return report
    return pickle.dumps((_Failure(failure.at, None, failure.text, failure.by_subject), None))


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3000:]


def _raised_by_subject(error: BaseException) -> bool:
    """Return whether the innermost frame in the project is outside of the falsifiers' folder."""
    paths = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    in_project = [p for p in paths if p.is_relative_to(FALSIFIERS.parent) and "site-packages" not in p.parts]
    return bool(in_project) and not in_project[-1].is_relative_to(FALSIFIERS)


def _results(ranks: Sequence[_Rank], deadline: float) -> list[Any]:
    """Return the results of all ranks, in order; raise the earliest failure as soon as there is one."""
    open_pipes = {rank.pipe: number for number, rank in enumerate(ranks)}
    results: dict[int, Any] = {}
    while open_pipes:
        ready, _, _ = select.select(list(open_pipes), [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            missing = sorted(open_pipes.values())
            raise AssertionError(f"no result of ranks {missing} of {len(ranks)} in time: they wait in a collective")
        failures = []
        for pipe in ready:
            number = open_pipes[pipe]
            if data := os.read(pipe, 1 << 20):
                ranks[number].received += data
                continue
            del open_pipes[pipe]
            failure, results[number] = _unpickled(number, ranks[number])
            failures += [(failure, number)] if failure else []
        if failures:
            # A rank that fails closes its connections, so others may fail because of it.
            _raise(*min(failures, key=lambda failed: failed[0].at))
    return [results[number] for number in range(len(ranks))]


def _unpickled(number: int, rank: _Rank) -> tuple[_Failure | None, Any]:
    """Return the failure, or None, and the result of a rank. Raise `RankError` if the rank wrote nothing."""
    if not rank.received:
        raise RankError(f"rank {number} crashed: it ended without a result")
    report: tuple[_Failure | None, Any] = pickle.loads(rank.received)
    return report


def _raise(failure: _Failure, number: int) -> None:
    if failure.error is None or (failure.by_subject and not isinstance(failure.error, AssertionError | NameError)):
        kind = AssertionError if failure.by_subject else RankError
        raise kind(f"rank {number} raised {failure.text.splitlines()[-1]}\n{failure.text}")
    failure.error.add_note(f"in rank {number}:\n{failure.text}")
    raise failure.error


def _end(ranks: Sequence[_Rank]) -> None:
    """Wait for the ranks, and kill the ranks that do not exit within `GRACE_S`."""
    deadline = time.monotonic() + GRACE_S
    for rank in ranks:
        os.close(rank.pipe)
    for rank in ranks:
        while os.waitpid(rank.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(rank.pid, signal.SIGKILL)
            time.sleep(0.001)
