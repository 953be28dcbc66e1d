"""Documents of a text, as rows of tokens: one document a row with padding, or several packed into a row.

A document ends after each occurrence of a separator, which belongs to it, so that a model learns where documents end.
Shape letters: N bytes, B batch, T position.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reference_trainer.data.batches import Document, batch_of_rows, first_fit, pad_documents, split_document
from reference_trainer.distillation.protocols import Batch, placed_segments
from reference_trainer.errors import DataError

__all__ = ["PADDING", "DocumentRows", "document_rows", "documents_of", "rows_of_documents"]

PADDING = 0  # the token of positions without a document; decided by the lengths, so a document may hold it
_PACKED_TOGETHER = 1000  # neighbouring documents, because the time of `first_fit` grows with the square of their number


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRows:
    """A part of a text as rows of documents, which batches keep in the given order.

    order: the numbers of the documents, row by row. ends: of each row, in `order`. length: T of packed rows; None for
    rows of one document each, padded to the longest of their batch. first: the number of the first row among the
    examples of the whole text.
    """

    documents: Sequence[Document]
    order: Sequence[int]
    ends: Sequence[int]
    length: int | None
    batch_size: int
    device: torch.device
    first: int = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ends)

    @property
    def batches(self) -> int:
        """The number of batches of an epoch; the last may be smaller."""
        return -(-len(self) // self.batch_size)

    def batch(self, order: Tensor, position: int) -> Batch:
        """Return batch `position` (from 1) of the rows in `order`, int64 [B, T]; packed rows have segments."""
        chosen = order[(position - 1) * self.batch_size : position * self.batch_size].tolist()
        rows = [self._row(number) for number in chosen]
        if self.length is None:
            batch = pad_documents([document for row in rows for document in row], padding_id=PADDING)
        else:
            batch = batch_of_rows(rows, length=self.length, padding_id=PADDING)
        segments = None if batch.segments is None else placed_segments(batch.segments, self.device)
        tokens_BT, labels_BT = batch.tokens.to(self.device), batch.labels.to(self.device)
        examples_B = torch.tensor([self.first + number for number in chosen], dtype=torch.int64, device="cpu")
        return Batch(tokens=tokens_BT, labels=labels_BT, segments=segments, examples=examples_B)

    def _row(self, number: int) -> list[Document]:
        begin = self.ends[number - 1] if number else 0
        return [self.documents[index] for index in self.order[begin : self.ends[number]]]


def document_rows(
    bytes_N: Tensor, separator: str, *, pack: bool, length: int, batch_size: int, device: torch.device, first: int = 0
) -> DocumentRows:
    """Return the documents of a part of a text as rows of at most `length` tokens, padded or packed.

    A longer document is split as in `split_document`; one of a single byte predicts nothing and is left out. Raise
    `DataError` if no document is left.
    """
    pieces = [
        piece
        for document in documents_of(bytes_N, separator)
        for piece in split_document(document, length)
        if len(piece.tokens) > 1
    ]
    if not pieces:
        raise DataError(
            f"no document of at least 2 bytes; the separator is {separator!r}: use another text or separator"
        )
    return rows_of_documents(pieces, pack=pack, length=length, batch_size=batch_size, device=device, first=first)


def rows_of_documents(
    documents: Sequence[Document],
    *,
    pack: bool,
    length: int,
    batch_size: int,
    device: torch.device,
    first: int = 0,
) -> DocumentRows:
    """Return documents of at most `length` tokens as rows: padded, one a row, or packed, several a row.

    Those of a batch are read from `documents` when it is formed.
    """
    order, ends = array("q"), array("q")
    for row in _packed(documents, length) if pack else ([number] for number in range(len(documents))):
        order.extend(row)
        ends.append(len(order))
    shape: Any = {"length": length if pack else None, "batch_size": batch_size, "device": device, "first": first}
    return DocumentRows(documents=documents, order=order, ends=ends, **shape)


def documents_of(bytes_N: Tensor, separator: str) -> list[Document]:
    """Return the documents of a text, uint8 [N], in order; together they hold every byte once."""
    sizes, ends = [], separator.encode("utf-8", "surrogateescape")
    *complete, rest = bytes_N.numpy().tobytes().split(ends)
    sizes = [*(len(part) + len(ends) for part in complete), len(rest)]
    return [Document(part_N) for part_N in torch.split(bytes_N, sizes) if len(part_N)]


def _packed(documents: Sequence[Document], length: int) -> Iterator[list[int]]:
    """Yield the numbers of the documents of each row."""
    for start in range(0, len(documents), _PACKED_TOGETHER):
        near = documents[start : start + _PACKED_TOGETHER]
        for row in first_fit([len(document.tokens) for document in near], length):
            yield [start + index for index in row]
