"""Wrong versions of public functions: the faults that the contract `rank-runs` declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def buckets_rebuilt_in_the_first_step(module: Any, tokens_BT: Any, **options: Any) -> None:
    """Let the module arrange its gradients after the first step of every leg."""


def divided_at_the_root(original: Any, self: Any, module: Any) -> None:
    """Undo the mean of the outermost part alone."""
    original(self, module)
    for part in list(module.modules())[1:]:
        if hasattr(part, "set_gradient_divide_factor"):
            part.set_gradient_divide_factor(float(self.world_size))


def projections_averaged(original: Any, module: Any, features: Any) -> Any:
    """Leave the gradients of sharded projections a mean over the ranks, as is the default."""
    matching, parallel = original(module, features)
    for part in (part for each in features.projections for part in each.modules()):
        if hasattr(part, "set_gradient_divide_factor"):
            part.set_gradient_divide_factor(float(parallel.world_size))
    return matching, parallel


def gathered_after_an_evaluation(original: Any, module: Any, device: Any) -> Any:
    """Leave the outermost part gathered after a forward, as is the default."""
    original(module, device).set_reshard_after_forward(False, recurse=False)
    return module


def every_rank_trains_on_the_same(original: Any, self: Any, epoch: int, position: int) -> Any:
    """Deal all ranks the batches of rank 0."""
    from dataclasses import replace

    return original(replace(self, rank=0), epoch, position)


def every_rank_evaluates_all(original: Any, teacher: Any, student: Any, rows: Any, *rest: Any, **named: Any) -> Any:
    """Count every sequence once on each rank."""
    parallel = named.pop("parallel", None)
    found = original(teacher, student, rows, *rest, **named)
    times = 1 if parallel is None else parallel.world_size
    return {name: type(each)(each.sum, each.count * times) for name, each in found.items()}


def file_of_rank_0(original: Any, path: Any, *, rank: int = 0) -> Any:
    """Read the shards of rank 0 on every rank."""
    return original(path, rank=0)


def rank_0_alone(ranks: Any, directory: Any, manifest: Any, tensors: Any, **rest: Any) -> Any:
    """Save the shard of rank 0 as if it were the whole."""
    from reference_trainer.storage.checkpoints import save_checkpoint

    return save_checkpoint(directory, manifest, tensors, **rest) if ranks.rank == 0 else None


def waited_for_without_limit(self: Any) -> None:
    """Go on before every rank has connected; what is exchanged waits for them."""


def ranks_not_compared(original: Any, *given: Any) -> Any:
    """Leave out the ranks from what is compared."""
    conditions = original(*given)
    return {name: each for name, each in conditions.items() if name not in ("world_size", "strategy")}


@contextmanager
def failure_kept_to_itself(self: Any) -> Iterator[None]:
    """Leave without a message."""
    yield


def own_failure_only(original: Any, self: Any, work: Any) -> Any:
    """Go on where another rank failed."""
    return work()


def decided_on_each_rank(original: Any, self: Any, work: Any) -> Any:
    """Let each rank decide for itself."""
    return work()


def differences_accepted(original: Any, self: Any, values: Mapping[str, Any]) -> None:
    """Compare nothing."""


def flags_of_this_rank(original: Any, *given: Any, flags: Any = (), leaves_out: Any = None, **named: Any) -> Any:
    """Keep the request to stop, and the answers of callbacks, on the rank that got them."""
    import torch

    own = torch.tensor([int(flag) for flag in flags])
    return original(*given, flags=flags, leaves_out=lambda summed: leaves_out(own), **named)


def one_step_late(original: Any, self: Any, flags: Any) -> bool:
    """Take one more step after an answer."""
    before = getattr(self, "before", False)
    self.before = original(self, flags)
    return before


def rank_0_alone_answers(original: Any, self: Any) -> Any:
    """Drop the answers of the other ranks."""
    import torch.distributed as dist

    requested, skipped, stopped = original(self)
    first = not dist.is_initialized() or dist.get_rank() == 0
    return requested, skipped and first, stopped and first


def skip_kept(original: Any, self: Any, answer: Any, *, between_epochs: bool = False) -> Any:
    """Keep a SKIP beyond the epoch that it ended."""
    return original(self, answer)


def agreed_between_epochs_alone(original: Any, self: Any, answer: Any, *, between_epochs: bool = False) -> Any:
    """Leave the answers so far to the next step, also where a checkpoint is saved."""
    from reference_trainer.training.schedule import Action

    agreed = original(self, answer, between_epochs=between_epochs)
    return agreed if between_epochs else Action.CONTINUE


def made_on_each_rank(original: Any, self: Any, make: Any, like: Any) -> Any:
    """Make the module on every rank."""
    return make()


def parts_of_several(original: Any, student: Any, strategy: str, device: Any, wrap: Any) -> Any:
    """Shard the student that this rank has made."""
    from reference_trainer.training.parallel import shard

    return wrap(shard(student, device)) if strategy == "fsdp2" else original(student, strategy, device, wrap)
