"""Connect the processes (ranks) of a run, exchange small values, and raise the error of one rank on all ranks.

Ranks find each other by the environment variables of `torchrun`: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
MASTER_PORT. Values and errors are exchanged through the key-value store of the launcher and not by collectives, for two
reasons: no device is needed, and ranks may wait without limit, for example while rank 0 trains a teacher. A rank that
fails writes its error message to the store before it exits; the waiting ranks raise `RankError` with this message.
"""

from __future__ import annotations

import itertools
import json
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed import (  # type: ignore[attr-defined]  # public, but mypy sees no export
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)

from reference_trainer.config.place import Place, integer_variable
from reference_trainer.errors import (
    LostRankError,
    RankError,
    SettingError,
    StopRequestedError,
    first_line,
)
from reference_trainer.storage.retention import differences

Result = TypeVar("Result")
Decision = TypeVar("Decision")
Module = TypeVar("Module", bound=nn.Module)

PAUSE_S = 0.005
"""Seconds between two reads of the store. A blocking wait in C++ would ignore signals and failures of other ranks."""
LEAVE_TIMEOUT = timedelta(seconds=5)
"""How long the rank that serves the store waits for the other ranks to leave."""
FAILURE = "failure"
"""Key of the first failure in the store: rank, message and kind, as JSON."""
# Numbers the runs of this process. The number is part of all keys, because a launcher's store keeps earlier keys.
_RUNS = itertools.count()
# The stores that this process serves, by host and port. They stay open until the process ends, because ranks may
# connect for the next run at any time.
_SERVED: dict[tuple[str, int], TCPStore] = {}
INTERRUPT, LOST = "interrupt", "lost"
"""Kinds of failures that several ranks may have at once; see `Ranks._report_failure`."""


def local_device(name: str, place: Place) -> str:
    """Return the device of this rank. With several processes and GPUs, the ranks of a machine have different GPUs.

    Args:
        name: The setting `device`: auto, cpu, cuda or cuda:N.
        place: The rank.

    Raises:
        SettingError: `name` is a numbered GPU, which several ranks would share.
    """
    if place.world_size == 1 or name == "cpu":
        return name
    if name.startswith("cuda:"):
        raise SettingError(f"invalid value {name!r} for 'device': expected auto, cpu or cuda with several processes")
    return f"cuda:{place.local_rank}" if name == "cuda" or torch.cuda.is_available() else "cpu"


@contextmanager
def connect_ranks(place: Place, environment: Mapping[str, str], *, timeout_s: int) -> Iterator[Ranks]:
    """Connect to the other ranks while the block runs; a single process connects to nothing.

    An error in the block reaches all ranks: the other ranks raise `RankError` with the message of the error when they
    next wait for a rank.

    Args:
        place: This rank, and the number of all ranks.
        environment: The environment variables.
        timeout_s: Time limit in seconds for connecting all ranks, and for every collective.

    Raises:
        LostRankError: The store cannot be reached, a rank did not connect in time, or a collective failed in the block.
        RankError: Another rank failed first.
        SettingError: MASTER_PORT is not a port.
    """
    if place.world_size == 1:
        yield Ranks(place, HashStore(), timeout_s)
        return
    serving = place.rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    ranks = Ranks(place, _store(place, environment, timeout_s, serving), timeout_s)
    try:
        with ranks.failing_together():
            ranks.meet()
            yield ranks
    finally:
        ranks.leave(serves_store=serving)


def _store(place: Place, environment: Mapping[str, str], timeout_s: int, serving: bool) -> Store:
    """Return the store that `env://` uses: the store of the launcher, or a store that rank 0 serves."""
    host = environment.get("MASTER_ADDR", "")
    port = integer_variable(environment, "MASTER_PORT", 1, 65535)
    store = _SERVED.get((host, port))
    timeout = timedelta(seconds=timeout_s)
    try:
        store = store or TCPStore(
            host, port, place.world_size, is_master=serving, timeout=timeout, wait_for_workers=False
        )
    except dist.DistError as error:
        raise LostRankError(f"rank {place.rank} cannot reach {host!r}, port {port}: {first_line(error)}") from error
    if serving:
        _SERVED[host, port] = store
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"reference_trainer/{attempt}/{next(_RUNS)}", store)


class Ranks:
    """The ranks of a run. All ranks must call the same methods in the same order: exchanges are matched by call number.

    Attributes:
        rank: The number of this process.
        local_rank: The number of this process on its machine.
        world_size: The number of processes.
    """

    def __init__(self, place: Place, store: Store, timeout_s: int) -> None:
        self.rank, self.local_rank, self.world_size = place.rank, place.local_rank, place.world_size
        self._store, self._timeout = store, timedelta(seconds=timeout_s)
        self._phases = itertools.count()
        self._device: torch.device | None = None  # the device of the process group

    def meet(self) -> None:
        """Wait until all ranks have connected. Raise `LostRankError`, with the missing ranks, after the time limit."""
        keys = [f"connected/{rank}" for rank in range(self.world_size)]
        self._store.set(keys[self.rank], "")
        if not self._wait(keys, self._timeout.total_seconds()):
            missing = [str(rank) for rank, key in enumerate(keys) if not self._store.check([key])]
            limit_s = self._timeout.total_seconds()
            error = LostRankError(f"rank {', '.join(missing)} did not connect within {limit_s:.0f} s")
            self._report_failure(error)  # ranks that connect later read this failure
            raise error

    def start(self, device: torch.device) -> None:
        """Create the default process group, with NCCL for a GPU or gloo for the CPU; a single process needs none."""
        if self.world_size == 1:
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend, store = dist.get_default_backend_for_device(device), PrefixStore("group", self._store)
        dist.init_process_group(backend, store=store, timeout=self._timeout, rank=self.rank, world_size=self.world_size)
        self._device = device

    def leave(self, *, serves_store: bool) -> None:
        """Destroy the process group, and report in the store that this rank has left.

        Args:
            serves_store: Whether this process serves the store, and therefore waits until all ranks have left, for at
                most `LEAVE_TIMEOUT`.
        """
        with suppress(RuntimeError):  # the group or the store may be broken already
            if self._device is not None:
                dist.destroy_process_group()
            self._store.set(f"left/{self.rank}", "")
            if serves_store:
                self._store.wait([f"left/{rank}" for rank in range(self.world_size)], LEAVE_TIMEOUT)

    def run_on_all(self, work: Callable[[], Result]) -> Result:
        """Call `work` on every rank, and return the result of this rank.

        Raises:
            Exception: The error of `work` on this rank.
            RankError: `work` raised on another rank; the message is from the lowest such rank.
        """
        # Every rank takes part in the exchange, also after an error: the other ranks wait for its message.
        results: list[Result] = []
        failure: Exception | None = None
        try:
            results.append(work())
        except Exception as error:
            failure = error
        failures = self.all_gather_json(None if failure is None else _message(failure))
        if failure is not None:
            raise failure
        for rank, message in enumerate(failures):
            if message is not None:
                raise RankError(f"rank {rank}: {message}")
        return results[0]

    def broadcast_decision(self, work: Callable[[], Decision]) -> Decision:
        """Call `work` on rank 0 alone, and return its result, a JSON value, on every rank."""
        result = self.run_on_all(lambda: work() if self.rank == 0 else None)
        decision: Decision = self.all_gather_json(result)[0]
        return decision

    def on_each_machine(self, work: Callable[[], object]) -> object:
        """Call `work` on the first rank of each machine; return its result (JSON, not null) on all its ranks."""
        results = self.all_gather_json(self.run_on_all(lambda: work() if self.local_rank == 0 else None))
        # The ranks of a machine are consecutive: the last result at or before this rank comes from the same machine.
        return next(result for result in results[self.rank :: -1] if result is not None)

    def broadcast_module(self, make: Callable[[], Module], like: Callable[[], Module]) -> Module:
        """Return on every rank a module with the tensors of the module that rank 0 creates.

        Rank 0 may take as long as it needs.

        Args:
            make: Creates the module, on the device of the rank; called on rank 0.
            like: Creates a module of the same shapes, on the device of the rank; called on all other ranks.
        """
        module = self.run_on_all(make if self.rank == 0 else like)
        if self._device is not None:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)
        return module

    def check_equal(self, values: Mapping[str, object]) -> None:
        """Raise `RankError` on all ranks, with both values, if a value of a rank differs from the value of rank 0."""
        first, *rest = self.all_gather_json(dict(values))
        for rank, rank_values in enumerate(rest, 1):
            if changed := differences(first, rank_values):
                raise RankError(f"rank {rank} differs from rank 0: {'; '.join(changed)}")

    def all_gather_json(self, value: object) -> list[Any]:
        """Return the JSON values of all ranks, in order. Wait without a time limit, until a rank fails."""
        phase = next(self._phases)
        keys = [f"{phase}/{rank}" for rank in range(self.world_size)]
        self._store.set(keys[self.rank], json.dumps(value))
        self._wait(keys)
        # Every rank has written its value of this phase, so all ranks have read the values of the previous phase.
        self._store.delete_key(f"{phase - 1}/{self.rank}")
        return [json.loads(self._store.get(key)) for key in keys]

    def _wait(self, keys: list[str], limit_s: float = math.inf) -> bool:
        """Wait until the store has all keys; return False after `limit_s`. Raise `RankError` if another rank fails."""
        since = time.monotonic()
        while not self._store.check(keys):
            if time.monotonic() - since > limit_s:
                return False
            if self._store.check([FAILURE]):
                rank, message, _ = json.loads(self._store.get(FAILURE))
                raise RankError(f"rank {rank}: {message}")
            time.sleep(PAUSE_S)
        return True

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """Report an error in this block to the other ranks; if another rank failed earlier, raise its error instead."""
        try:
            yield
        except (RankError, StopRequestedError):  # all ranks raise these errors, so no report is needed
            raise
        except BaseException as error:
            first = self._report_failure(error)
            if first is not None:
                raise RankError(first) from error
            if _from_collective(error):
                raise LostRankError(f"lost another rank: {_message(error)}") from error
            raise

    def _report_failure(self, error: BaseException) -> str | None:
        """Store this error as the first failure of the run, unless a failure is stored already.

        Return the message of the stored failure if this rank must raise it; None if this rank must raise its own error.
        """
        with suppress(RuntimeError):  # the process that serves the store may have ended
            kind = _kind(error)
            failure = json.dumps([self.rank, _message(error), kind])
            # compare_set returns the first failure that was stored. A failing rank stores its message before it closes
            # its connections, unless it was killed, so the message comes before the errors of lost connections.
            rank, message, first_kind = json.loads(self._store.compare_set(FAILURE, "", failure))
            # This rank raises its own error in three cases: it failed first; both ranks were interrupted; or the first
            # failure is only a lost connection, and the error of this rank is not an interrupt.
            raises_own = kind == first_kind == INTERRUPT or (first_kind == LOST and kind != INTERRUPT)
            return None if rank == self.rank or raises_own else f"rank {rank}: {message}"
        return None


def _kind(error: BaseException) -> str:
    """Return `INTERRUPT`, `LOST` or "error"."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPT
    return LOST if _from_collective(error) else "error"


def _message(error: BaseException) -> str:
    """Return an error message as one line. For an error of a collective, omit the C++ stack after its first line."""
    return first_line(error) if _from_collective(error) else " ".join(f"{str(error) or type(error).__name__}".split())


def _from_collective(error: BaseException) -> bool:
    """Return whether a collective raised the error. Gloo raises a bare `RuntimeError`, also in a backward pass."""
    if isinstance(error, dist.DistError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    path = frames[-1].filename if frames else ""
    return type(error) is RuntimeError and ("/torch/distributed/" in path or path.endswith("/torch/autograd/graph.py"))
