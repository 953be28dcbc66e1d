"""Wrong versions of public functions: the faults that the contract declares."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reference_trainer.config.place import Place


def buckets_rebuilt_in_the_first_step(module: Any, tokens_BT: Any, **options: Any) -> None:
    """Let the module arrange its gradients after the first step of every leg."""


def flags_sent_again(original: Any, self: Any) -> Any:
    before = self.pending
    flags = original(self)
    self.pending = before
    return flags


def every_rank_evaluates_all(original: Any, teacher: Any, student: Any, rows: Any, *rest: Any, **named: Any) -> Any:
    parallel = named.pop("parallel", None)
    metrics = original(teacher, student, rows, *rest, **named)
    times = 1 if parallel is None else parallel.world_size
    return {name: type(value)(value.sum, value.count * times) for name, value in metrics.items()}


def ranks_not_compared(original: Any, *arguments: Any) -> Any:
    conditions = original(*arguments)
    return {name: condition for name, condition in conditions.items() if name not in ("world_size", "strategy")}


def manifests_not_compared(original: Any, self: Any, values: Any) -> None:
    original(self, {name: value for name, value in values.items() if name != "manifest_sha256"})


def teachers_not_compared(original: Any, self: Any, values: Any) -> None:
    original(self, {name: value for name, value in values.items() if name != "teacher_sha256"})


@contextmanager
def failure_kept_to_itself(self: Any) -> Iterator[None]:
    yield


def decided_on_each_rank(original: Any, self: Any, work: Any) -> Any:
    return work()


def parts_of_several(original: Any, student: Any, strategy: str, device: Any, wrap: Any, dtype: str = "float32") -> Any:
    from reference_trainer.ranks.parallel import shard

    if strategy == "fsdp2":
        return wrap(shard(student, device, dtype))
    return original(student, strategy, device, wrap, dtype)


def alone_without_a_size(original: Any, environment: Any) -> Any:
    return original(environment) if "WORLD_SIZE" in environment else Place()


def first_gpu(original: Any, name: str, place: Place) -> str:
    return str(original(name, Place(rank=place.rank, world_size=place.world_size, local_rank=0)))


def joined_to_the_first_attempt(original: Any, place: Place, environment: Any, **named: Any) -> Any:
    return original(place, {**environment, "TORCHELASTIC_RESTART_COUNT": "0"}, **named)


def first_machine_for_all(original: Any, self: Any, work: Any) -> Any:
    return self.all_gather_json(original(self, work))[0]
