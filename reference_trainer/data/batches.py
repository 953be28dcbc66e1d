"""Batches of documents of different lengths: padded, one document a row, or packed, several in a row.

A padded batch has padding after each document, where causal attention cannot see it, and so suits every causal model. A
packed batch has segments, which the model must take: attention and positions are confined to a document.
Shape letters: N tokens of a document, B batch, T position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from reference_trainer.data.labels import create_labels
from reference_trainer.distillation.protocols import INTEGERS, Batch
from reference_trainer.errors import DataError, ShapeError

__all__ = ["Document", "batch_of_rows", "first_fit", "pack_documents", "pad_documents", "split_document"]


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """The tokens of a document, integers [N], of which the first `prompt` are given and not predicted.

    given: bool [N], True for other tokens that are not predicted, such as the questions of a chat; None if there are
    none. Raise `ShapeError` for other tokens or another mask, `DataError` for a prompt that is negative or longer than
    the document.
    """

    tokens: Tensor
    prompt: int = 0
    given: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, Tensor) or self.tokens.dim() != 1 or self.tokens.dtype not in INTEGERS:
            value = self.tokens
            read = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError(f"invalid tokens of a document: {read}, expected an integer tensor [N]")
        if self.given is not None and (self.given.dtype != torch.bool or self.given.shape != self.tokens.shape):
            read = f"{self.given.dtype} {list(self.given.shape)}"
            raise ShapeError(f"invalid mask of a document of {len(self.tokens)} tokens: {read}, expected bool [N]")
        if not 0 <= self.prompt <= len(self.tokens):
            raise DataError(f"invalid prompt of {self.prompt} tokens in a document of {len(self.tokens)}")


def pad_documents(documents: Sequence[Document], *, padding_id: int) -> Batch:
    """Return one row for each document, as wide as the longest, filled with `padding_id`; padding is never predicted.

    Padding is decided by the lengths: a document may hold `padding_id` as a token.
    """
    width = max((len(document.tokens) for document in documents), default=0)
    return replace(batch_of_rows([[one] for one in documents], length=width, padding_id=padding_id), segments=None)


def pack_documents(documents: Sequence[Document], *, length: int, padding_id: int) -> Batch:
    """Return rows of `length` tokens, each with the documents that `first_fit` places there, and their segments.

    The documents of a row are numbered from 1 in `segments`. No token is predicted from another document. Raise
    `DataError` if a document is longer than `length`; `split_document` cuts it into pieces.
    """
    rows = first_fit([len(document.tokens) for document in documents], length)
    return batch_of_rows([[documents[index] for index in row] for row in rows], length=length, padding_id=padding_id)


def batch_of_rows(rows: Sequence[Sequence[Document]], *, length: int, padding_id: int) -> Batch:
    """Return rows of `length` tokens, each with its documents in order and their segments.

    The batch is on the CPU; providers and step move its tensors to the device of their model.
    """
    tokens_BT = torch.full((len(rows), length), padding_id, dtype=torch.int64, device="cpu")
    segments_BT, prompts_BT = torch.zeros_like(tokens_BT), torch.zeros_like(tokens_BT, dtype=torch.bool)
    for b, row in enumerate(rows):
        start = 0
        for number, document in enumerate(row, 1):
            end = start + len(document.tokens)
            tokens_BT[b, start:end] = document.tokens
            segments_BT[b, start:end] = number
            if document.given is not None:
                prompts_BT[b, start:end] = document.given
            prompts_BT[b, start : start + document.prompt] = True
            start = end
    labels_BT = create_labels(tokens_BT, segments_BT, prompts=prompts_BT)
    return Batch(tokens=tokens_BT, labels=labels_BT, segments=segments_BT)


def first_fit(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Return the indices in each row: each size in turn goes to the first row with room for it, or to a new row.

    Indices increase within a row. The time grows with the product of sizes and rows. Raise `DataError` for a size
    larger than `capacity`.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index, size in enumerate(sizes):
        if size > capacity:
            raise DataError(
                f"document {index} has {size} tokens, a row {capacity}; use longer rows or `split_document`"
            )
        row = next((row for row, room in enumerate(free) if size <= room), len(free))
        if row == len(free):
            rows.append([])
            free.append(capacity)
        rows[row].append(index)
        free[row] -= size
    return rows


def split_document(document: Document, length: int) -> list[Document]:
    """Return the document in pieces of at most `length` tokens, each starting with the last token of the previous one.

    So every token but the first is predicted once, from the tokens before it in its piece. Raise `DataError` if
    `length` is less than 2.
    """
    if length < 2:
        raise DataError(f"invalid value {length} for 'length': expected at least 2, because pieces share a token")
    pieces = []
    for start in range(0, max(len(document.tokens) - 1, 1), length - 1):
        tokens_N = document.tokens[start : start + length]
        given_N = None if document.given is None else document.given[start : start + length]
        pieces.append(Document(tokens_N, min(max(document.prompt - start, 0), len(tokens_N)), given_N))
    return pieces
