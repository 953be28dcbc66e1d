"""Map a function over blocks of data in worker processes, in order; used to tokenise chats and to align tokenizers."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

import torch

from reference_trainer.errors import DataError

Block = TypeVar("Block")
Result = TypeVar("Result")
MAX_WORKERS = 8
"""The largest default number of workers."""
AHEAD = 3
"""Number of blocks in memory per worker: one is computed, one waits for the worker, one is done."""


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, at most `MAX_WORKERS`."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MAX_WORKERS)


def ordered_map(function: Callable[[Block], Result], blocks: Iterable[Block], workers: int) -> Iterator[Result]:
    """Yield `function(block)` for each block, in the order of the blocks. Workers end when this process ends.

    Args:
        function: A function. It need not be picklable, because forked workers inherit it, with objects such as a
            tokenizer.
        blocks: Picklable values. At most `AHEAD` * `workers` blocks are read before their results are consumed.
        workers: The number of forked processes; with 0, the function is called in this process.

    Raises:
        DataError: A worker was killed, for example for lack of memory.
        Exception: The first exception that `function` or `blocks` raised, in the order of the blocks.
    """
    if not workers:
        yield from map(function, blocks)
        return
    global _function
    _function = function  # workers are forked below and inherit it
    executor = ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=_initialize)
    # Results are yielded in the order of the blocks. The limit on waiting blocks bounds the memory of a slow consumer.
    waiting = deque[Future[Result]]()

    def submit_all() -> Iterator[Future[Result]]:
        try:
            for block in blocks:
                yield executor.submit(_call, block)
        except Exception as error:  # raised only after the results of the blocks before it
            failed = Future[Result]()
            failed.set_exception(error)
            yield failed

    try:
        for future in submit_all():
            waiting.append(future)
            if len(waiting) >= AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            "a worker process that read the data was killed, perhaps for lack of memory; use fewer --data-workers"
        ) from error
    finally:
        _function = None
        executor.shutdown(cancel_futures=True)


_function: Callable[..., object] | None = None  # the function of `ordered_map` in the workers


def _call(block: object) -> Any:
    assert _function is not None
    return _function(block)


def _initialize() -> None:
    """Prepare a worker: ignore interrupts, which the parent handles; compute in one thread; end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = parent_process()
    assert parent is not None

    # A parent that is killed cannot end its workers, so each worker waits for the end of the parent.
    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
