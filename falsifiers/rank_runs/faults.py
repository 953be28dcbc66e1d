"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def buckets_rebuilt_in_the_first_step(module: Any, tokens_BT: Any, **options: Any) -> None:
    """Let the module arrange its gradients after the first step of every leg."""


def every_rank_evaluates_all(original: Any, teacher: Any, student: Any, rows: Any, *rest: Any, **named: Any) -> Any:
    """Count every sequence once on each rank."""
    parallel = named.pop("parallel", None)
    found = original(teacher, student, rows, *rest, **named)
    times = 1 if parallel is None else parallel.world_size
    return {name: type(each)(each.sum, each.count * times) for name, each in found.items()}


def file_of_rank_0(original: Any, path: Any, *, rank: int = 0) -> Any:
    """Read the shards of rank 0 on every rank."""
    return original(path, rank=0)


def ranks_not_compared(original: Any, *given: Any) -> Any:
    """Leave out the ranks from what is compared."""
    conditions = original(*given)
    return {name: each for name, each in conditions.items() if name not in ("world_size", "strategy")}


@contextmanager
def failure_kept_to_itself(self: Any) -> Iterator[None]:
    """Leave without a message."""
    yield


def decided_on_each_rank(original: Any, self: Any, work: Any) -> Any:
    """Let each rank decide for itself."""
    return work()


def parts_of_several(original: Any, student: Any, strategy: str, device: Any, wrap: Any) -> Any:
    """Shard the student that this rank has made."""
    from reference_trainer.ranks.parallel import shard

    return wrap(shard(student, device)) if strategy == "fsdp2" else original(student, strategy, device, wrap)
