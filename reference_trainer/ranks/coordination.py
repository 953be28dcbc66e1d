"""Connect the processes (ranks) of a run, exchange small values, and raise the error of one rank on all ranks.

Ranks find each other by the environment variables of `torchrun`: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
MASTER_PORT. Values and errors are exchanged through the key-value store of the launcher and not by collectives, for two
reasons: no device is needed, and a rank may wait without limit, such as for rank 0 while it trains a teacher. A rank
that fails writes its message to the store before it exits; the waiting ranks read the message and raise it.
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
"""Seconds between two reads of the store. A wait in C++ would neither handle signals nor notice that a rank failed."""
LEAVE_TIMEOUT = timedelta(seconds=5)
"""Time that the rank with the store waits for the other ranks at the end."""
FAILURE = "failure"
"""Key of the first failure in the store: rank, message and kind, as JSON."""
# Numbers of the runs of this process. They are part of the keys, because a launcher's store keeps earlier keys.
_RUNS = itertools.count()
# The stores that this process serves, by host and port. They stay open until the process ends, because ranks may
# connect for the next run at any time.
_SERVED: dict[tuple[str, int], TCPStore] = {}
INTERRUPT, LOST = "interrupt", "lost"
"""Kinds of failures that several ranks may have at once; see `Ranks._first_failure`."""


def local_device(name: str, place: Place) -> str:
    """Return the name of the device of this rank. The ranks of a machine have different GPUs.

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
    """Connect to the other ranks for the time of this block; a single process connects to nothing.

    An error in the block reaches all ranks: the others raise `RankError` with its message when they next wait for a
    rank.

    Args:
        place: This rank, and the number of all ranks.
        environment: The environment variables.
        timeout_s: Seconds in which all ranks must connect, and for which a collective waits.

    Raises:
        LostRankError: The store cannot be reached, or a rank did not connect in time.
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
    """Return the store that `env://` uses: the launcher's own, or one that rank 0 serves."""
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
    """The ranks of a run. All ranks call the same methods in the same order: values are exchanged by number of call.

    Attributes:
        rank: The number of this process.
        local_rank: The number of this process on its machine.
        world_size: The number of processes.
    """

    def __init__(self, place: Place, store: Store, timeout_s: int) -> None:
        self.rank, self.local_rank, self.world_size = place.rank, place.local_rank, place.world_size
        self._store, self._timeout = store, timedelta(seconds=timeout_s)
        self._phases = itertools.count()
        self._device: torch.device | None = None  # of the process group

    def meet(self) -> None:
        """Wait until all ranks have connected. Raise `LostRankError` with the ranks that did not connect in time."""
        keys = [f"connected/{rank}" for rank in range(self.world_size)]
        self._store.set(keys[self.rank], "")
        if not self._wait(keys, self._timeout.total_seconds()):
            missing = [str(rank) for rank, key in enumerate(keys) if not self._store.check([key])]
            error = LostRankError(f"rank {', '.join(missing)} did not connect within {self._timeout.seconds} s")
            self._first_failure(error)  # for ranks that connect later
            raise error

    def start(self, device: torch.device) -> None:
        """Create the default process group of several ranks: NCCL for a GPU, gloo for the CPU."""
        if self.world_size == 1:
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend, store = dist.get_default_backend_for_device(device), PrefixStore("group", self._store)
        dist.init_process_group(backend, store=store, timeout=self._timeout, rank=self.rank, world_size=self.world_size)
        self._device = device

    def leave(self, *, serves_store: bool) -> None:
        """Destroy the process group, so that no other rank waits for this rank.

        Args:
            serves_store: Whether this process serves the store, and therefore waits until all ranks have left, for at
                most `LEAVE_TIMEOUT`.
        """
        with suppress(RuntimeError):  # of a group or a store that is broken already
            if self._device is not None:
                dist.destroy_process_group()
            self._store.set(f"left/{self.rank}", "")
            if serves_store:
                self._store.wait([f"left/{rank}" for rank in range(self.world_size)], LEAVE_TIMEOUT)

    def run_on_all(self, work: Callable[[], Result]) -> Result:
        """Call `work` on every rank, and return the result of this rank.

        Raises:
            Exception: The error of `work` on this rank.
            RankError: `work` raised on another rank; the message is from the first such rank.
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
        """Call `work` on the first rank of every machine; return its result, JSON and not None, on all ranks there."""
        results = self.all_gather_json(self.run_on_all(lambda: work() if self.local_rank == 0 else None))
        # The ranks of a machine are consecutive, so the nearest result at or before this rank is of its machine.
        return next(result for result in results[self.rank :: -1] if result is not None)

    def broadcast_module(self, make: Callable[[], Module], like: Callable[[], Module]) -> Module:
        """Return on every rank a module with the tensors of the module that rank 0 creates.

        Rank 0 may take as long as it needs.

        Args:
            make: Creates the module, on the device of the rank; called on rank 0.
            like: Creates a module of the same shapes, on the device of the rank; called on all others.
        """
        module = self.run_on_all(make if self.rank == 0 else like)
        if self._device is not None:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)
        return module

    def check_equal(self, values: Mapping[str, object]) -> None:
        """Raise `RankError` on all ranks if a rank has other values than rank 0; the message has both."""
        first, *rest = self.all_gather_json(dict(values))
        for rank, rank_values in enumerate(rest, 1):
            if changed := differences(first, rank_values):
                raise RankError(f"rank {rank} differs from rank 0: {'; '.join(changed)}")

    def all_gather_json(self, value: object) -> list[Any]:
        """Return the values of all ranks, in order; a value is JSON. Wait without limit for living ranks."""
        phase = next(self._phases)
        keys = [f"{phase}/{rank}" for rank in range(self.world_size)]
        self._store.set(keys[self.rank], json.dumps(value))
        self._wait(keys)
        # Every rank has written its value of this phase, so it has read the values of the phase before.
        self._store.delete_key(f"{phase - 1}/{self.rank}")
        return [json.loads(self._store.get(key)) for key in keys]

    def _wait(self, keys: list[str], limit_s: float = math.inf) -> bool:
        """Wait for keys in the store; return whether they came in time. Raise `RankError` if another rank fails."""
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
        """Report an error in this block to the other ranks; if another rank failed before, raise its error instead."""
        try:
            yield
        except (RankError, StopRequestedError):  # all ranks raise it, so it needs no report
            raise
        except BaseException as error:
            first = self._first_failure(error)
            if first is not None:
                raise RankError(first) from error
            if _from_collective(error):
                raise LostRankError(f"lost another rank: {_message(error)}") from error
            raise

    def _first_failure(self, error: BaseException) -> str | None:
        """Store this error as the first failure of the run.

        If there is one already, return its message, unless this rank has to raise its own error; else return None.
        """
        with suppress(RuntimeError):  # the store is gone with its process
            kind = _kind(error)
            failure = json.dumps([self.rank, _message(error), kind])
            # compare_set returns the first failure that was stored. A rank whose failure ended the connections of the
            # others stored its message before it left, unless it was killed.
            rank, message, first_kind = json.loads(self._store.compare_set(FAILURE, "", failure))
            # This rank raises its own error in three cases: it failed first; both ranks were interrupted; or the first
            # failure is a lost connection, which says less than the error of this rank, unless that is an interrupt.
            raises_own = kind == first_kind == INTERRUPT or (first_kind == LOST and kind != INTERRUPT)
            return None if rank == self.rank or raises_own else f"rank {rank}: {message}"
        return None


def _kind(error: BaseException) -> str:
    """Return `INTERRUPT`, `LOST` or "error"."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPT
    return LOST if _from_collective(error) else "error"


def _message(error: BaseException) -> str:
    """Return the message of an error as one line; only its first line if a C++ stack follows, as from a collective."""
    return first_line(error) if _from_collective(error) else " ".join(f"{str(error) or type(error).__name__}".split())


def _from_collective(error: BaseException) -> bool:
    """Return whether a collective raised the error. Gloo raises a bare `RuntimeError`, also in a backward pass."""
    if isinstance(error, dist.DistError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    path = frames[-1].filename if frames else ""
    return type(error) is RuntimeError and ("/torch/distributed/" in path or path.endswith("/torch/autograd/graph.py"))
