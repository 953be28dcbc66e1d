"""A map over blocks in worker processes, whose results come in the order of the blocks."""

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
MOST = 8
"""Workers by default, on machines with as many CPUs or more."""
AHEAD = 3
"""Blocks for a worker that are in memory at once: one in work, one that waits, one that is done."""


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, at most `MOST`."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST)


def ordered_map(function: Callable[[Block], Result], blocks: Iterable[Block], workers: int) -> Iterator[Result]:
    """Yield `function(block)` for each block, in order; with `workers` above 0, in that many forked processes.

    Forked processes share what `function` refers to, such as a tokenizer that cannot be pickled; blocks and results are
    pickled. At most `AHEAD` blocks a worker are read ahead. Workers end with this process.

    Raises:
        DataError: If a worker was killed, such as for lack of memory.
        Exception: What `function` or `blocks` raised first, in the order of the blocks.
    """
    if not workers:
        yield from map(function, blocks)
        return
    global _function
    _function = function  # forked, not pickled
    executor = ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=_initialize)
    waiting = deque[Future[Result]]()
    try:
        for block in blocks:
            waiting.append(executor.submit(_call, block))
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


_function: Callable[..., object] | None = None


def _call(block: Any) -> Any:
    assert _function is not None
    return _function(block)


def _initialize() -> None:
    """Leave interrupts to the parent, compute in one thread, and end when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
