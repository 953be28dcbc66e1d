"""Attacks on the counts of accepted drafts, and on the length that they give. Drafts are counted by hand."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from reference_trainer import Document, MetricSum
from reference_trainer.data.documents import rows_of_documents
from reference_trainer.distillation.objective import Weights

TOKENS, LENGTH = 4, 12
WORDS = st.tuples(st.lists(st.integers(0, TOKENS - 1), min_size=1, max_size=LENGTH), st.integers(0, 3))
DOCUMENTS = st.lists(WORDS, min_size=1, max_size=24)
"""Tokens of each document, and how many of them are given."""
BEST = st.lists(st.integers(0, TOKENS - 1), min_size=TOKENS, max_size=TOKENS)
"""The most probable successor of each token."""

Counts = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Table:
    """A model whose logits depend on the last token."""

    best: list[int]
    vocab_size: int = TOKENS

    def logits(self, batch: Any) -> Tensor:
        return torch.eye(TOKENS, dtype=torch.float64)[torch.tensor(self.best)][batch.tokens]


def rows(documents: list[tuple[list[int], int]], batch_size: int, *, pack: bool) -> Any:
    """Return the trainer's rows of documents."""
    made = [Document(torch.tensor(tokens), prompt=min(prompt, len(tokens))) for tokens, prompt in documents]
    shape: dict[str, Any] = {"length": LENGTH, "batch_size": batch_size, "device": torch.device("cpu")}
    return rows_of_documents(made, pack=pack, **shape)


def drafts(agreed: list[bool], depth: int) -> Counts:
    """Return hits and trials of each depth in one stretch of scored tokens: a draft from each of them on."""
    counts = [(0, 0)] * depth
    for start in range(len(agreed)):
        for k, same in enumerate(agreed[start : start + depth]):
            hits, trials = counts[k]
            counts[k] = (hits + same, trials + 1)
            if not same:
                break
    return counts


def total(parts: list[Counts], depth: int) -> Counts:
    """Return the sums of hits and trials."""
    return [(sum(part[k][0] for part in parts), sum(part[k][1] for part in parts)) for k in range(depth)]


def length_of(counts: Counts) -> Fraction:
    """Return the sum of the products of the shares, up to the first depth without a trial."""
    length, reached = Fraction(0), Fraction(1)
    for hits, trials in counts:
        if not trials:
            break
        reached *= Fraction(hits, trials)
        length += reached
    return length


def accepted_in(documents: list[tuple[list[int], int]], student: list[int], teacher: list[int], depth: int) -> Counts:
    """Return hits and trials over documents: the scored tokens of one are those after its prompt and its first."""
    parts = []
    for tokens, prompt in documents:
        context = tokens[max(prompt, 1) - 1 : -1]
        parts.append(drafts([student[token] == teacher[token] for token in context], depth))
    return total(parts, depth)


WIDTH = 9
ROW = st.tuples(*(st.tuples(st.booleans(), st.sampled_from([True, True, False]), st.integers(0, 1)),) * WIDTH)
"""Whether a position agrees and is scored, and whether a document begins there."""


@given(positions=st.lists(ROW, min_size=1, max_size=4), depth=st.integers(0, WIDTH + 1), segmented=st.booleans())
def falsify_drafts_are_counted_in_each_stretch(
    subject: Any, device: str, positions: list[Any], depth: int, segmented: bool
) -> None:
    table = torch.tensor(positions, device=device)
    agreed, scored, numbers = table[..., 0] > 0, table[..., 1] > 0, table[..., 2].cumsum(1)
    parts = []
    for row in positions:
        stretch: list[bool] = []
        for same, counts, begins in row:
            if not counts or (segmented and begins):
                parts.append(drafts(stretch, depth))
                stretch = []
            stretch += [same] if counts else []
        parts.append(drafts(stretch, depth))
    hits, trials = subject.accepted(agreed, scored, numbers if segmented else None, depth)
    seen = [(int(hit), int(trial)) for hit, trial in zip(hits, trials, strict=True)]
    expected = total(parts, depth)
    assert seen == expected, f"{positions} to depth {depth}: hits and trials are {seen}; expected {expected}"


COUNTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted), min_size=1, max_size=4)
UNEVEN = [[[7, 8], [2, 4]], [[1, 2], [0, 1]]]
"""0.8, and 0.4 of these, in two batches: the mean of the lengths of both is 0.906."""


@given(batches=st.lists(COUNTS, min_size=1, max_size=4))
@example(batches=UNEVEN)
def falsify_length_is_that_of_all_drafts(subject: Any, batches: list[list[list[int]]]) -> None:
    sums: dict[str, MetricSum] = {}
    for batch in batches:
        named = {f"accepted_{k}": MetricSum(float(hits), trials) for k, (hits, trials) in enumerate(batch, 1)}
        sums = subject.add(sums, named)
    depth = max(map(len, batches))
    padded = [[(hits, trials) for hits, trials in batch] + [(0, 0)] * (depth - len(batch)) for batch in batches]
    counts, seen = total(padded, depth), subject.derived(sums)
    if not counts[0][1]:
        assert "accept_length" not in seen, f"{batches}: no draft was tried, and the length is {seen['accept_length']}"
        return
    expected = 1.12 if batches == UNEVEN else float(length_of(counts))
    assert math.isclose(seen["accept_length"], expected, rel_tol=1e-12, abs_tol=0), (
        f"{batches}: the length of accepted drafts is {seen['accept_length']}; expected {expected}"
    )
    untried = [f"accepted_{k}" for k, (_, trials) in enumerate(counts, 1) if not trials]
    assert not seen.keys() & untried, f"{batches}: no trial at {untried}, and {seen} are reported"


BATCHES = (1, 3, 4, 7, 16)


@given(documents=DOCUMENTS, tables=st.tuples(BEST, BEST), depth=st.integers(1, 5), pack=st.booleans())
@example(documents=[([0, 1, 2, 3], 1), ([0], 0)], tables=([1, 2, 3, 0], [1, 2, 3, 0]), depth=5, pack=True)
def falsify_evaluation_counts_drafts_of_documents(
    subject: Any, documents: list[tuple[list[int], int]], tables: tuple[list[int], list[int]], depth: int, pack: bool
) -> None:
    counts = accepted_in(documents, *tables, depth)
    expected = {f"accepted_{k}": each for k, each in enumerate(counts, 1) if each[1]}
    for size in BATCHES:
        seen = _evaluated(subject, documents, tables, depth, size, pack=pack)
        assert seen == expected, f"{documents} in batches of {size}: hits and trials are {seen}; expected {expected}"


def _evaluated(subject: Any, documents: Any, tables: Any, depth: int, size: int, *, pack: bool, **more: Any) -> Any:
    student, teacher = map(Table, tables)
    weights = Weights(temperature=1.0, ce_weight=1.0, kd_weight=1.0)
    data = rows(documents, size, pack=pack)
    seen = subject.evaluate(teacher, student, data, weights, accept_depth=depth, **more)
    return {name: (each.sum, each.count) for name, each in seen.items() if name.startswith("accepted_")}
