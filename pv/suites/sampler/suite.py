"""The suite `sampler`: how samplers are called, and the claims about samplers.

The main claims: an epoch has every example once, ranks divide the examples, seed and epoch determine the order, and a
restored sampler continues at its position.
"""

import copy
import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import torch
from hypothesis import given
from hypothesis import strategies as st

from pv.suites.bench import CallableBench, parameters_of

NAMES = {
    "lengths": ("lengths", "sizes", "sequence_lengths", "weights"),  # any positive numbers can serve as weights
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
WRITE = """cannot call {name}: {why}. Write a function or class with some of these parameters, and pass it:

    def make(size, batch_size, seed, world_size, rank, drop_last, shuffle):
        return {name}(...)  # iterating over it gives the indices, or lists of indices, of an epoch

Parameters may have other usual names:
{names}"""

Item: TypeAlias = int | list[int]
"""An item that a sampler yields: an index, or the indices of a batch."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The arguments of a sampler: examples, batch size, ranks, seed, and whether incomplete batches are dropped."""

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
    """A dataset of rows of tokens, with lengths from 3 to 7."""

    def __init__(self, size: int) -> None:
        self.lengths = [3 + 7 * k % 5 for k in range(size)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": [0] * self.lengths[index]}


class Run:
    """The sampler of one case; samplers that take the epoch as an argument are created again in every epoch."""

    def __init__(self, bench: "Bench", case: Case) -> None:
        self.bench, self.case, self.sampler = bench, case, bench.build(case, 0)

    def begin(self, epoch: int) -> Iterator[object]:
        """Return an iterator over an epoch."""
        if self.bench.arguments["epoch"]:
            self.sampler = self.bench.build(self.case, epoch)
        elif hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        return iter(self.sampler)

    def epoch(self, epoch: int) -> list[Item]:
        """Return the items of an epoch, at most `4 * size + 50`, since a sampler may be endless."""
        return self.take(self.begin(epoch), 4 * self.case.size + 50)

    def take(self, items: Iterator[object], count: int) -> list[Item]:
        """Return the next `count` items of an iterator, or fewer if the iterator ends."""
        return [as_integers(item) for item in islice(items, count)]

    def state_after(self, epoch: int, count: int) -> dict[str, object]:
        """Return the state of the sampler after `count` items of an epoch."""
        iterator = self.begin(epoch)
        self.take(iterator, count)
        return copy.deepcopy(stateful_part(self.sampler, iterator).state_dict())

    def resume(self, epoch: int, state: dict[str, object], *, epoch_first: bool) -> list[Item]:
        """Load a state, and return the rest of the epoch.

        Args:
            epoch: The epoch of the state.
            state: The state.
            epoch_first: Whether to set the epoch before the state is loaded; otherwise, the state is loaded first. The
                state of an iterator, instead of a sampler, can only be loaded after the epoch has begun.
        """
        state_first = has_state(self.sampler) and not epoch_first
        iterator = iter(()) if state_first else self.begin(epoch)
        stateful_part(self.sampler, iterator).load_state_dict(copy.deepcopy(state))
        if has_state(self.sampler):
            iterator = self.begin(epoch) if state_first else iter(self.sampler)
        return self.take(iterator, 4 * self.case.size + 50)


class Bench(CallableBench):
    """A class or function that creates a sampler.

    Arguments that a `functools.partial` binds are not changed.
    """

    write, names = WRITE, NAMES

    def __init__(self, make: Callable[..., object]) -> None:
        super().__init__(make)
        if not callable(make):
            self.refuse("it is not callable")
        bound, parameters = getattr(make, "keywords", {}), parameters_of(make)
        free = {name: parameter for name, parameter in parameters.items() if name not in bound}
        self.arguments = self.roles_of(free)
        of_examples = [role for role in ("lengths", "data", "size") if self.arguments[role]]
        # If several parameters describe the examples, such as lengths and dataset, pass only the first one and those
        # that are required.
        for role in of_examples[1:]:
            if free[self.arguments[role]].default is not inspect.Parameter.empty:
                self.arguments[role] = ""
        self.refuse_unknown(free, self.arguments)
        if not of_examples:
            self.refuse("no parameter is the dataset, its lengths or its size")
        defaults = {name: parameter.default for name, parameter in parameters.items()}
        self.set_features(self._reasons({**defaults, **bound}, *self._first_item()))

    def build(self, case: Case, epoch: int) -> Any:
        """Return a new sampler for a case; `epoch` is used only if the sampler takes it as an argument."""
        values = vars(case) | {"data": Examples(case.size), "lengths": Examples(case.size).lengths}
        values |= {"generator": torch.Generator().manual_seed(case.seed), "epoch": epoch, "shuffle": True}
        return self.subject(**{name: values[role] for role, name in self.arguments.items() if name})

    def start(self, case: Case) -> Run:
        """Return a run of a case, and record it as used."""
        run = Run(self, case)
        self.used.append(run)
        return run

    def ranks(self, case: Case) -> list[Run]:
        """Return the runs of all ranks of a case."""
        return [self.start(replace(case, rank=rank)) for rank in range(case.world)]

    def _first_item(self) -> tuple[object, object, object]:
        """Return a sampler, its iterator, and the first item of an epoch."""
        with self.first_call():
            run = self.start(Case(size=12))
            iterator = run.begin(0)
            first = as_integers(next(iterator))
        if iterator is run.sampler and not self.arguments["epoch"]:
            self.refuse("it returns an iterator, which has one epoch, and takes no `epoch`")
        return run.sampler, iterator, first

    def _reasons(
        self, defaults: Mapping[str, object], sampler: object, iterator: object, first: object
    ) -> dict[str, str]:
        """Return, by feature, the reason why the subject does not have it; "" if it does.

        Args:
            defaults: The default, or the bound value, of each parameter.
            sampler: A sampler.
            iterator: The iterator of the sampler over an epoch.
            first: The first item of the epoch.
        """
        names = self.arguments
        repeats = defaults.get("replacement", False) is True or getattr(sampler, "replacement", False) is True
        seeded = names["seed"] or names["generator"]
        shuffles = names["shuffle"] or (seeded and defaults.get("shuffle") is not False)
        saves_state = (has_state(sampler) or has_state(iterator)) and not names["epoch"]
        no_batches = "it yields indices" if not isinstance(first, list) else "" if names["batch"] else "no batch_size"
        return {
            "once": "it draws with replacement" if repeats else "",
            "ranks": "" if names["world"] and names["rank"] else "it takes no number of ranks and rank",
            "drop": "" if names["drop"] else "it takes no drop_last",
            "shuffle": "" if shuffles else "it has one order",
            "seed": "" if seeded else "it takes no seed or generator",
            "len": "" if hasattr(sampler, "__len__") else "it has no len",
            "state": "" if saves_state else "it has no state_dict and load_state_dict",
            "batches": no_batches,
        }


def bench(subject: Callable[..., object], directory: Path | None) -> Bench:
    """Return the bench of a class or a function; raise `CannotCall` for any other subject."""
    return Bench(subject)


def as_integers(item: Any) -> Item:
    """Return an index as an int, or a batch as a list of ints."""
    # A tensor without dimensions has `__len__`, and is an index.
    is_batch = hasattr(item, "__len__") and getattr(item, "shape", None) != ()
    return [int(index) for index in item] if is_batch else int(item)


def stateful_part(sampler: object, iterator: object) -> Any:
    """Return the object that saves the position: the sampler if it has a state, else the iterator of an epoch."""
    return sampler if has_state(sampler) else iterator


def has_state(part: object) -> bool:
    """Return whether an object has `state_dict` and `load_state_dict`."""
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


# Strategies for the fields of `Case`.
CASES = {"batch": st.integers(2, 5), "seed": st.integers(0, 9)}
MANY = st.integers(16, 40)  # numbers of examples at which two random orders are hardly ever equal
RANKS = {"world": st.integers(2, 4), **CASES}


def drops(bench: Bench) -> list[bool]:
    """Return the values of `drop_last` to try."""
    return [False] if "drop" in bench.lacks else [False, True]


def flat(items: Sequence[Item]) -> list[int]:
    """Return the indices in items; an item is an index or a batch of indices."""
    return [index for item in items for index in (item if isinstance(item, list) else [item])]


def excerpt(items: Sequence[object]) -> str:
    """Format the first six items, and ", ..." if there are more."""
    return f"{[*items[:6]]}" if len(items) <= 6 else f"[{', '.join(map(str, items[:6]))}, ...]"


def check_bounds(indices: list[int], size: int, case: object) -> None:
    """Assert that all indices are between 0 and size - 1."""
    outside = sorted({*indices} - {*range(size)})
    assert not outside, f"of {case}, it yields {excerpt(outside)}; indices are 0 to {size - 1}"


@given(size=st.integers(1, 40), **CASES)
def falsify_every_example_once(bench: Bench, size: int, batch: int, seed: int) -> None:
    run = bench.start(Case(size=size, batch=batch, seed=seed))
    for epoch in range(2):
        actual = flat(run.epoch(epoch))
        check_bounds(actual, size, run.case)
        missing = sorted({*range(size)} - {*actual})
        last = f"; they are the last, incomplete batch of {size % batch}" if len(missing) == size % batch else ""
        assert not missing, f"of {run.case}, epoch {epoch} leaves out {excerpt(missing)}{last}"
        repeated = sorted(index for index, times in Counter(actual).items() if times > 1)
        assert not repeated, f"of {run.case}, epoch {epoch} has {len(actual)} indices; repeated: {excerpt(repeated)}"


def check_ranks(bench: Bench, case: Case) -> None:
    """Assert that all ranks have the same number of items, and that all ranks together have every example once.

    To give all ranks the same number, a sampler may repeat as many examples as needed, or drop them with `drop_last`.
    """
    size, parts = case.size, [run.epoch(0) for run in bench.ranks(case)]
    lengths = [len(part) for part in parts]
    assert len({*lengths}) == 1, f"of {case}, the ranks have {lengths} items; the longest waits for the others"
    actual = Counter(index for part in parts for index in flat(part))
    check_bounds(list(actual), size, case)
    missing, repeated = sorted({*range(size)} - {*actual}), actual.total() - len(actual)
    cause = "; every rank has the same" if len({*map(str, parts)}) == 1 and lengths[0] else ""
    # To make the ranks equal, samplers repeat or drop either whole batches or single indices.
    full_batches = all(isinstance(rows, list) and len(rows) == case.batch for part in parts for rows in part)
    limit = case.world * (case.batch if full_batches else 1) - 1
    if case.drop:
        assert not repeated, f"of {case}, {repeated} indices are repeated, with drop_last{cause}"
        assert len(missing) <= limit, f"of {case}, {excerpt(missing)} are left out; at most {limit} have to be"
    else:
        assert not missing, f"of {case}, {excerpt(missing)} are on no rank; {repeated} indices are repeated{cause}"
        assert repeated <= limit, f"of {case}, {repeated} indices are repeated; padding takes {-size % case.world}"


@given(size=st.integers(4, 40), **RANKS)
def falsify_ranks(bench: Bench, size: int, world: int, batch: int, seed: int) -> None:
    for drop in drops(bench):
        check_ranks(bench, Case(size=size, world=world, drop=drop, batch=batch, seed=seed))


@given(size=st.integers(1, 3), extra=st.integers(1, 5), batch=CASES["batch"])
def falsify_fewer_examples_than_ranks(bench: Bench, size: int, extra: int, batch: int) -> None:
    try:
        check_ranks(bench, Case(size=size, world=size + extra, batch=batch))
    except ValueError:  # a sampler may refuse fewer examples than ranks
        return


@given(size=MANY, **CASES)
def falsify_epochs_have_orders_of_their_own(bench: Bench, size: int, batch: int, seed: int) -> None:
    run = bench.start(Case(size=size, batch=batch, seed=seed))
    orders = [flat(run.epoch(epoch)) for epoch in range(3)]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        cause = "; set_epoch was called before each" if hasattr(run.sampler, "set_epoch") else ""
        assert orders[one] != orders[other], (
            f"of {run.case}, the epochs {one} and {other} have the same order {excerpt(orders[one])}{cause}"
        )
    in_order = orders[0] == sorted(orders[0]) and orders[1] == sorted(orders[1])
    assert not in_order, f"of {run.case}, it does not shuffle"


@given(size=MANY, epoch=st.integers(1, 3), **CASES)
def falsify_seed_and_epoch_decide(bench: Bench, size: int, epoch: int, batch: int, seed: int) -> None:
    run, second, other = (bench.start(Case(size=size, batch=batch, seed=s)) for s in (seed, seed, seed + 17))
    orders = [run.epoch(k) for k in range(epoch + 1)]
    # A sampler without a way to set the epoch must iterate over the earlier epochs first.
    sets_epoch = bool(bench.arguments["epoch"]) or hasattr(second.sampler, "set_epoch")
    actual = second.epoch(epoch) if sets_epoch else [second.epoch(k) for k in range(epoch + 1)][-1]
    circumstance = "set without the epochs before" if sets_epoch else "of a second sampler"
    assert actual == orders[-1], (
        f"of {run.case}, epoch {epoch} of seed {seed} begins with {excerpt(orders[-1])}, "
        f"and {circumstance} with {excerpt(actual)}"
        f"{'; that is the order of epoch 0' if actual == orders[0] else ''}"
    )
    assert other.epoch(0) != orders[0] or "shuffle" in bench.lacks, (
        f"of {run.case}, seeds {seed} and {seed + 17} have the same order {excerpt(orders[0])}"
    )


def generator_states() -> dict[str, object]:
    """Return the states of the global generators of torch, random and numpy."""
    states: dict[str, object] = {"torch": torch.get_rng_state().tolist(), "random": random.getstate()}
    numpy = sys.modules.get("numpy")  # a sampler cannot draw from numpy unless it is imported
    return states if numpy is None else {**states, "numpy": str(numpy.random.get_state()[1:])}


@given(size=MANY, **CASES)
def falsify_global_generators_are_left(bench: Bench, size: int, batch: int, seed: int) -> None:
    case = Case(size=size, batch=batch, seed=seed)
    numpy = sys.modules.get("numpy")
    with torch.random.fork_rng(devices=[]):
        expected = bench.start(case).epoch(0)
        torch.manual_seed(size)
        random.seed(size)
        if numpy is not None:
            numpy.random.seed(size)
        run, before = bench.start(case), generator_states()
        actual, after = run.epoch(0), generator_states()
    assert actual == expected, (
        f"of {run.case}, seed {seed} has another order once the global generators are seeded anew"
    )
    changed = [name for name, state in before.items() if state != after[name]]
    assert not changed, (
        f"of {run.case}, with seed {seed}, it draws from the global generator of {' and '.join(changed)}"
    )


@given(size=st.integers(4, 40), **RANKS)
def falsify_len(bench: Bench, size: int, world: int, batch: int, seed: int) -> None:
    case = Case(size=size, world=1 if "ranks" in bench.lacks else world, batch=batch, seed=seed)
    for run in [run for drop in drops(bench) for run in bench.ranks(replace(case, drop=drop))]:
        for epoch in range(2):
            length, actual = len(run.sampler), len(run.epoch(epoch))
            kind = "indices" if "batches" in bench.lacks else "batches"
            place = f"of {run.case}, len of rank {run.case.rank} is {length}"
            assert length == actual, f"{place}; epoch {epoch} has {actual} {kind}"


@given(size=MANY, at=st.integers(2, 40), epoch=st.integers(0, 2), **CASES)
def falsify_resume(bench: Bench, size: int, at: int, epoch: int, batch: int, seed: int) -> None:
    world = 1 if "ranks" in bench.lacks else 2
    case = Case(size=size, world=world, rank=world - 1, batch=batch, seed=seed)
    uninterrupted, cut, resumed, resumed_again = (bench.start(case) for _ in range(4))
    orders = [uninterrupted.epoch(k) for k in range(epoch + 2)]
    for k in range(epoch):
        cut.epoch(k)
    at = min(at, len(orders[epoch]))
    state = cut.state_after(epoch, at)
    # Some loops set the epoch before they load the state, others after: one of the two ways must work.
    fault = resume_fault(resumed, orders, at, state, epoch_first=True)
    assert not fault or not resume_fault(resumed_again, orders, at, state, epoch_first=False), fault


def resume_fault(run: Run, orders: list[list[Item]], at: int, state: dict[str, object], *, epoch_first: bool) -> str:
    """Resume a run in the epoch `len(orders) - 2`, and return the fault; "" if there is none.

    Args:
        run: The run to resume.
        orders: The uninterrupted orders of all epochs, up to the epoch after the resumed epoch.
        at: The number of items of the resumed epoch before the cut.
        state: The state after these items.
        epoch_first: Whether to set the epoch before the state is loaded; otherwise, the state is loaded first.
    """
    order, next_order = orders[-2:]
    actual = run.resume(len(orders) - 2, state, epoch_first=epoch_first)
    place = f"of {run.case}, resumed after {at} of {len(order)} items of epoch {len(orders) - 2}"
    if at == len(order) and actual == next_order:  # a sampler may resume in the next epoch
        return ""
    if actual != order[at:]:
        mistakes = {"it starts the epoch again": order, "an item is left out": order[at + 1 :]}
        mistakes |= {"an item is repeated": order[at - 1 :], "it has the order of the first epoch": orders[0][at:]}
        causes = [f"; {name}" for name, wrong in mistakes.items() if actual == wrong]
        return f"{place}, it yields {excerpt(actual)}, not {excerpt(order[at:])}{''.join(causes[:1])}"
    actual = run.epoch(len(orders) - 1)
    if actual == next_order:
        return ""
    cause = f"; the first {at} are skipped again" if actual == next_order[at:] else ""
    return f"{place}, the next epoch is {excerpt(actual)}, not {excerpt(next_order)}{cause}"


@given(size=st.integers(4, 40), **CASES)
def falsify_batch_size(bench: Bench, size: int, batch: int, seed: int) -> None:
    for drop in drops(bench):
        run = bench.start(Case(size=size, drop=drop, batch=batch, seed=seed))
        sizes = [len(rows) for rows in run.epoch(0) if isinstance(rows, list)]
        assert all(length == batch for length in sizes[:-1]), f"of {run.case}, the batches have {sizes}"
        assert not sizes or 0 < sizes[-1] <= batch, f"of {run.case}, the last batch has {sizes[-1]}"
        expected = [batch] * (size // batch)
        assert not drop or sizes == expected, f"of {run.case}, the batches have {sizes}, not {expected}"
