"""The subject of the contract: a resumable sampler that yields the batches of an epoch for one of several ranks."""

from collections.abc import Iterator

import torch


class Batches:
    """An iterable of batches of indices. All ranks get the same number of examples.

    If the number of examples is no multiple of the number of ranks, the first examples are repeated. With `drop_last`,
    the last examples are dropped instead, and so is an incomplete last batch of a rank.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        world_size: int = 1,
        rank: int = 0,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.size, self.batch_size, self.world_size, self.rank = size, batch_size, world_size, rank
        self.seed, self.drop_last = seed, drop_last
        # `done` is the number of batches that the epoch has yielded, `skip` the number to skip in the next iteration.
        self.epoch = self.done = self.skip = 0

    def set_epoch(self, epoch: int) -> None:
        # Another epoch starts at its first batch. Setting the epoch of a restored state again keeps the position.
        if epoch != self.epoch:
            self.done = self.skip = 0
        self.epoch = epoch

    def __len__(self) -> int:
        return batch_count(
            examples_per_rank(self.size, self.world_size, self.drop_last), self.batch_size, self.drop_last
        )

    def __iter__(self) -> Iterator[list[int]]:
        indices = rank_indices(order(self.size, self.seed, self.epoch), self.world_size, self.rank, self.drop_last)
        batches = [indices[k : k + self.batch_size] for k in range(0, len(indices), self.batch_size)]
        # A restored position is used in one iteration only.
        self.done, self.skip = self.skip, 0
        for batch in complete_batches(batches, self.batch_size, self.drop_last)[self.done :]:
            self.done += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.done, self.skip = state["epoch"], state["done"], state["done"]


def order(size: int, seed: int, epoch: int) -> list[int]:
    """Return the random order of all examples in an epoch."""
    # The factor is larger than any epoch. With seed + epoch, seed 1 in epoch 1 and seed 2 in epoch 0 share an order.
    generator = torch.Generator().manual_seed(1000003 * seed + epoch)
    indices: list[int] = torch.randperm(size, generator=generator).tolist()
    return indices


def examples_per_rank(size: int, world: int, drop: bool) -> int:
    """Return the number of examples per rank. It is rounded down with `drop`, and up without `drop`."""
    return size // world if drop else -(-size // world)


def rank_indices(order: list[int], world: int, rank: int, drop: bool) -> list[int]:
    """Return the indices of a rank, in the order of the epoch."""
    total = world * examples_per_rank(len(order), world, drop)
    return every_nth(repeat(order, total)[:total], world, rank)


def every_nth(indices: list[int], world: int, rank: int) -> list[int]:
    return indices[rank::world]


def repeat(order: list[int], total: int) -> list[int]:
    """Repeat the order until it has at least `total` indices."""
    return order * -(-total // len(order))


def complete_batches(batches: list[list[int]], size: int, drop: bool) -> list[list[int]]:
    """Return all batches; with `drop`, only the complete batches."""
    return [batch for batch in batches if len(batch) == size or not drop]


def batch_count(examples: int, size: int, drop: bool) -> int:
    return examples // size if drop else -(-examples // size)
