"""Rows of documents with prompts, two tables of logits, and the drafts that are accepted in them, by hand."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from reference_trainer import Document
from reference_trainer.data.documents import rows_of_documents

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
    made = [Document(torch.tensor(tokens), prompt=min(given, len(tokens))) for tokens, given in documents]
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
    for tokens, given in documents:
        context = tokens[max(given, 1) - 1 : -1]
        parts.append(drafts([student[token] == teacher[token] for token in context], depth))
    return total(parts, depth)
