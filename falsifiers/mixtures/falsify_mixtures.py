"""Attacks on rows of several sources in one epoch, and on batches of data without random access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.support.assertions import assert_equal, refusal
from reference_trainer import DataError, Document, SettingError, ShuffledBatches, rows_of_documents
from reference_trainer.data.documents import join_rows

CPU = torch.device("cpu")


@given(
    sources=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9)), min_size=1, max_size=4),
    batch_size=st.integers(1, 3),
    world_size=st.integers(1, 3),
    seed=st.integers(0, 9),
)
@example(sources=[(7, 1), (2, 3), (3, 2)], batch_size=2, world_size=2, seed=0)
@example(sources=[(3, 4), (2, 1)], batch_size=1, world_size=1, seed=0)
def falsify_proportions_are_exact(
    subject: Any, sources: list[tuple[int, int]], batch_size: int, world_size: int, seed: int
) -> None:
    sizes, weights = map(list, zip(*sources, strict=True))
    options = {"pack": False, "length": 2, "batch_size": batch_size, "device": CPU}
    numbers = [[Document(torch.tensor([source, row])) for row in range(size)] for source, size in enumerate(sizes)]
    rows = join_rows([rows_of_documents(documents, **options) for documents in numbers])

    def read(epoch: int) -> list[tuple[int, int]]:
        """Return source and row of each row of an epoch, in order, by batches that were made anew."""
        mixture = subject.Mixture(sizes=sizes, weights=weights, batch_size=batch_size)
        shared = {"sequences": rows, "seed": seed, "world_size": world_size, "order": mixture}
        ranks = [ShuffledBatches(rank=rank, **shared) for rank in range(world_size)]
        dealt = [batches.batch(epoch, k + 1) for k in range(ranks[0].batches) for batches in ranks]
        return [tuple(row) for batch in dealt if (batch.labels != -100).any() for row in batch.tokens.tolist()]

    epochs = [read(epoch) for epoch in (1, 2, 3)]
    case = f"sources of {sizes} rows with weights {weights}"
    total = sum(weights)
    exact = Fraction(sizes[0] * total, weights[0])
    for epoch in epochs:
        assert_equal(f"{case}: rows of an epoch", len(epoch), len(epochs[0]))
        assert exact - 1 < len(epoch) < exact + Fraction(total, weights[0]), f"{case}: {len(epoch)} rows of an epoch"
        first = sorted(row for source, row in epoch if source == 0)
        assert_equal(f"{case}: rows of the first source in an epoch", first, list(range(sizes[0])))
        taken = Counter[int]()
        for number, (source, _) in enumerate(epoch, 1):
            taken[source] += 1
            for index, weight in enumerate(weights):
                apart = taken[index] - Fraction(number * weight, total)
                assert abs(apart) < 1, f"{case}: of {number} rows, {taken[index]} are of source {index}: {epoch}"
    for source, size in enumerate(sizes):
        order = [row for epoch in epochs for at, row in epoch if at == source]
        rounds = [sorted(order[begin : begin + size]) for begin in range(0, len(order) - size + 1, size)]
        assert rounds == [list(range(size))] * len(rounds), f"{case}: source {source} is read in the order {order}"
    assert_equal("another reading of the third epoch", read(3), epochs[2])


def falsify_orders_are_drawn_by_seed_source_and_round(subject: Any) -> None:
    mixture = subject.Mixture(sizes=[20, 20], weights=[1, 1], batch_size=1)
    orders = dict[str, list[int]]()
    for seed in (0, 1):
        for epoch in (1, 2):
            rows = mixture.order(seed, epoch).tolist()
            for source in (0, 1):
                name = f"source {source} with seed {seed} in epoch {epoch}"
                orders[name] = [row % 20 for row in rows if row // 20 == source]
    for one, other in combinations(orders, 2):
        assert orders[one] != orders[other], f"{one} has the order of {other}: {orders[one]}"


@given(
    values=st.lists(st.sampled_from(["1", "2", "0.5", "1e-3", "0.1", "3.0"]), min_size=1, max_size=3),
    bad=st.sampled_from(["", "0", "-1", '"1"', "true", "null", "1e9", "1e-9", "0.30000000000000004"]),
    most=st.integers(999_998, 10**6),
)
def falsify_weights_are_read_exactly(subject: Any, values: list[str], bad: str, most: int) -> None:
    text = ", ".join(f'"{number}.jsonl": {value}' for number, value in enumerate(values))
    weights = list(subject.read_weights("{" + text + "}").values())
    assert_equal("weights", weights, [Fraction(value) for value in values])
    integers = subject.integer_weights(weights)
    shares = [Fraction(weight, sum(integers)) for weight in integers]
    assert_equal("shares", shares, [Fraction(value) / sum(map(Fraction, values)) for value in values])
    words = refusal(lambda: subject.integer_weights([Fraction(most - 1), Fraction(1)]), SettingError)
    assert bool(words) == (most == 10**6), f"weights of a sum of {most}: {words or 'accepted'}"
    largest = subject.read_weights('{"a.jsonl": 999999999, "b.jsonl": 1e-8}')
    assert_equal("weights of 9 digits", list(largest.values()), [999_999_999, Fraction(1, 10**8)])
    assert "'mix'" in refusal(lambda: subject.read_weights("{}"), SettingError), "no weight is accepted"
    if bad:
        words = refusal(lambda: subject.read_weights('{"bad.jsonl": ' + bad + "}"), SettingError)
        assert "'bad.jsonl'" in words, f"the weight {bad}: {words or 'accepted'}"


@given(
    lengths=st.lists(st.integers(1, 4), min_size=12, max_size=30),
    batch_size=st.integers(1, 3),
    world_size=st.integers(1, 2),
    pack=st.booleans(),
    requests=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 9)), min_size=1, max_size=6),
)
@example(lengths=[4, 1] * 510, batch_size=3, world_size=1, pack=True, requests=[(1, 168)])  # beyond 1,000 documents
def falsify_batches_of_streams(
    subject: Any, lengths: list[int], batch_size: int, world_size: int, pack: bool, requests: list[tuple[int, int]]
) -> None:
    """In any order of requests, as a resumed run makes them, batches equal the batches of one reading in order."""

    def documents(epoch: int) -> Iterator[Document]:
        for number, length in enumerate(lengths[::-1] if epoch == 2 else lengths):
            yield Document(torch.full((length,), 100 * epoch + number))

    options = {"documents": documents, "length": 5, "batch_size": batch_size, "pack": pack, "world_size": world_size}
    in_memory = {epoch: list(documents(epoch)) for epoch in (1, 2)}
    rows = {
        e: rows_of_documents(d, pack=pack, length=5, batch_size=batch_size, device=CPU) for e, d in in_memory.items()
    }
    batches = min(len(part) for part in rows.values()) // (batch_size * world_size)
    for rank in range(world_size):
        stream = subject.StreamedBatches(batches=batches, rank=rank, **options)
        for epoch, position in [*requests, (1, 1), (2, 1)]:
            if position > batches:
                enough = (position - 1) * world_size + rank + 1 <= len(rows[epoch]) // batch_size
                words = refusal(lambda s=stream, e=epoch, p=position: s.batch(e, p), DataError)
                needed = f"of {batches}: expected {batches * world_size * batch_size} rows"
                assert enough or f"ends before batch {position} {needed}" in words, f"batch {position}: {words}"
                continue
            expected = rows[epoch].batch(torch.arange(len(rows[epoch])), (position - 1) * world_size + rank + 1)
            batch = stream.batch(epoch, position)
            for name in ("tokens", "labels", "segments"):
                one, other = getattr(batch, name), getattr(expected, name)
                values = [None if part is None else part.tolist() for part in (one, other)]
                assert_equal(f"{name} of batch {position} of rank {rank} in epoch {epoch}", *values)
