"""One attempt of a supervised run: its ranks, started by torch's elastic agent without restarts of its own.

The agent's restarts fail under gloo (pytorch/pytorch#135712), so every attempt has an agent and a store of its own.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from reference_trainer.supervision.decision import Ending

__all__ = ["GRACE_S", "attempted"]

GRACE_S = 60
"""Seconds in which ranks have to save and leave after a signal, before they are killed."""
_REFUSED = 2
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def attempted(arguments: Sequence[str], beats: Path, *, ranks: int, name: str) -> tuple[Ending, str]:
    """Run the command `arguments` in `ranks` processes, and return how it ended and in words why.

    beats: the directory of their heartbeats. name: of this attempt, used once. Raise `KeyboardInterrupt` after a signal
    to this process, which the ranks got too.
    """
    script = ["-m", "reference_trainer.cli.rank", str(os.getpid()), str(beats), *arguments]
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what it logs is returned
    if ranks > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does: every rank would use all cores
    with _handlers_restored():
        try:
            elastic_launch(_config(ranks, name), sys.executable)(*script)
        except SignalException as error:
            raise KeyboardInterrupt from error
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            code = failure.exitcode
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            return Ending.REFUSED if code == _REFUSED else Ending.FAILED, f"rank {rank} ended with {how}"
    return Ending.FINISHED, "the run came to its end"


def _config(ranks: int, name: str) -> LaunchConfig:
    known = LaunchConfig.__dataclass_fields__  # torch 2.8 has no `shutdown_timeout`
    patience: dict[str, Any] = {"shutdown_timeout": GRACE_S} if "shutdown_timeout" in known else {}
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(),
        **patience,
    )


@contextmanager
def _handlers_restored() -> Iterator[None]:
    """Restore the handlers of signals, which the agent replaces."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
