"""Create samplers of the subject, read their epochs, and find the features that they lack."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch

from pv.suites.bench import CallableBench, parameters_of

NAMES = {
    "lengths": ("lengths", "sizes", "sequence_lengths", "weights"),
    "data": ("dataset", "data_source", "data", "examples", "sampler"),
    "size": ("size", "n", "num_examples", "dataset_size", "dataset_len", "count", "length", "total", "num_samples"),
    "batch": ("batch_size",),
    "world": ("num_replicas", "world_size", "num_processes", "num_ranks", "world"),
    "rank": ("rank", "process_index"),
    "seed": ("seed", "data_seed", "random_seed"),
    "generator": ("generator",),
    "epoch": ("epoch",),
    "shuffle": ("shuffle",),
    "drop": ("drop_last",),
}
WRITE = """cannot call {name}: {why}. Write a function or class that takes what it has of these, and pass it:

    def make(size, batch_size, seed, world_size, rank, drop_last, shuffle):
        return {name}(...)  # its iteration is an epoch of indices or of lists of indices

Of each parameter, other names are known, too:
{names}"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The arguments of a sampler: examples, batch size, ranks, seed, and whether an incomplete rest is dropped."""

    size: int
    batch: int = 4
    world: int = 1
    rank: int = 0
    seed: int = 0
    drop: bool = False

    def __str__(self) -> str:
        parts = [f"{self.size} example{'s' if self.size > 1 else ''}", f"batch size {self.batch}"]
        parts += [f"{self.world} ranks"] if self.world > 1 else []
        return ", ".join([*parts, "drop_last"] if self.drop else parts)


class Examples:
    """A dataset of rows of tokens."""

    def __init__(self, size: int) -> None:
        self.lengths = [3 + 7 * k % 5 for k in range(size)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": [0] * self.lengths[index]}


class Run:
    """A sampler. make: makes it for an epoch."""

    def __init__(self, bench: "Bench", case: Case) -> None:
        self.bench, self.case, self.sampler = bench, case, bench.build(case, 0)

    def begin(self, epoch: int) -> Iterator[Any]:
        if self.bench.arguments["epoch"]:
            self.sampler = self.bench.build(self.case, epoch)
        elif hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        return iter(self.sampler)

    def epoch(self, epoch: int) -> list[Any]:
        """Return the indices of an epoch, or its batches of indices; not much more than there can be."""
        # A sampler may be endless: read a few more items than any right epoch has.
        return self.take(self.begin(epoch), 4 * self.case.size + 50)

    def take(self, items: Iterator[object], most: int) -> list[Any]:
        return [plain(item) for item in islice(items, most)]

    def cut(self, epoch: int, after: int) -> dict[str, Any]:
        """Return the state after some items of an epoch."""
        iterator = self.begin(epoch)
        self.take(iterator, after)
        owner: Any = self.sampler if stateful(self.sampler) else iterator
        state: dict[str, Any] = copy.deepcopy(owner.state_dict())
        return state

    def resumed(self, epoch: int, state: dict[str, Any], *, late: bool) -> list[Any]:
        """Return the rest of an epoch after a state is loaded. late: loaded after the epoch is set, not before."""
        iterator = self.begin(epoch) if late or not stateful(self.sampler) else iter(())
        owner: Any = self.sampler if stateful(self.sampler) else iterator
        owner.load_state_dict(copy.deepcopy(state))
        if stateful(self.sampler):
            iterator = iter(self.sampler) if late else self.begin(epoch)
        return self.take(iterator, 4 * self.case.size + 50)


class Bench(CallableBench):
    """A class or function that makes a sampler."""

    write = WRITE
    names: ClassVar = {role: usual for role, usual in NAMES.items() if len(usual) > 1}

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        if not callable(make):
            raise self.cannot_call("it is not callable")
        bound, parameters = getattr(make, "keywords", {}), parameters_of(make)
        free = {name: parameter for name, parameter in parameters.items() if name not in bound}
        self.arguments = {role: next((n for n in names if n in free), "") for role, names in NAMES.items()}
        needed = {
            name
            for name, parameter in free.items()
            if parameter.default is parameter.empty and parameter.kind not in (2, 4)
        }
        of_examples = [role for role in ("lengths", "data", "size") if self.arguments[role]]
        # A sampler that takes lengths and a dataset gets one of them.
        for role in of_examples[1:]:  # the others are passed only if they have to be
            self.arguments[role] = self.arguments[role] if self.arguments[role] in needed else ""
        if unknown := needed - {*self.arguments.values()}:
            raise self.cannot_call(f"unknown parameter {min(unknown)!r}")
        if not of_examples:
            raise self.cannot_call("no parameter is the dataset, its lengths or its size")
        self.set_features(
            self._reasons({**{n: p.default for n, p in parameters.items()}, **bound}, *self._first_items())
        )

    def build(self, case: Case, epoch: int) -> Any:
        values = vars(case) | {"data": Examples(case.size), "lengths": Examples(case.size).lengths}
        values |= {"generator": torch.Generator().manual_seed(case.seed), "epoch": epoch, "shuffle": True}
        return self.subject(**{name: values[role] for role, name in self.arguments.items() if name})

    def start(self, **case: Any) -> Run:
        run = Run(self, Case(**case))
        self.used.append(run)
        return run

    def ranks(self, **case: Any) -> list[Run]:
        return [self.start(rank=rank, **case) for rank in range(case.get("world", 1))]

    def _first_items(self) -> tuple[Any, Any, Any]:
        """Return a sampler, its iterator, and the first item of an epoch."""
        try:
            run = self.start(size=12)
            iterator = run.begin(0)
            first = plain(next(iterator))
        except Exception as error:
            raise self.cannot_call(f"{type(error).__name__}: {error}") from error
        if iterator is run.sampler and not self.arguments["epoch"]:
            raise self.cannot_call("it returns an iterator, which has one epoch, and takes no `epoch`")
        return run.sampler, iterator, first

    def _reasons(self, defaults: dict[str, Any], sampler: object, iterator: object, first: object) -> dict[str, str]:
        """Return the reason of every missing feature; "" for a feature that is there."""
        names = self.arguments
        repeats = defaults.get("replacement", False) is True or getattr(sampler, "replacement", False) is True
        seeded = names["seed"] or names["generator"]
        shuffles = names["shuffle"] or (seeded and defaults.get("shuffle") is not False)
        saved = (stateful(sampler) or stateful(iterator)) and not names["epoch"]
        batched = isinstance(first, list)
        return {
            "once": "it draws with replacement" if repeats else "",
            "ranks": "" if names["world"] and names["rank"] else "it takes no number of ranks and rank",
            "drop": "" if names["drop"] else "it takes no drop_last",
            "shuffle": "" if shuffles else "it has one order",
            "seed": "" if seeded else "it takes no seed or generator",
            "len": "" if hasattr(sampler, "__len__") else "it has no len",
            "state": "" if saved else "it has no state_dict and load_state_dict",
            "batches": "" if batched and names["batch"] else "it yields indices" if not batched else "no batch_size",
        }


def bench(subject: object, directory: Path | None) -> Bench:
    """Return a bench of a class or a function; raise `CannotCall` with what to write for everything else."""
    return Bench(subject)


def plain(item: Any) -> Any:
    """Return an index, or the list of them in a batch."""
    many = hasattr(item, "__len__") and getattr(item, "shape", None) != ()
    return [int(index) for index in item] if many else int(item)


def stateful(part: object) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
