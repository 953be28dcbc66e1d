"""Make rows of tokens from documents: one document per row with padding, or several packed into a row.

A document of a text includes the separator at its end (the last one may have none), so that a model learns where
documents end. Every causal model can use a padded batch, because padding follows the document, where causal attention
does not read it. A packed batch needs a model that accepts `segments`: in such a model, a token attends only to its own
document, and positions count from the start of the document. Labels mark the predicted tokens.

Documents can be stored in two files, so that a batch reads its own documents and no others. `tokens` has the tokens of
all documents as int32; a token that is not predicted is stored as its bitwise complement. `ends` has, for each
document, the number of tokens in all documents up to its end, as int64.

Shape letters: N bytes or tokens, B batch, T position.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Protocol, overload, runtime_checkable

import numpy
import torch
from torch import Tensor

from reference_trainer.data.text import LengthGroups
from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.packed_rows import placed_segments, queued_copy
from reference_trainer.distillation.protocols import INTEGERS, Batch
from reference_trainer.errors import DataError, ShapeError


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """The tokens of a document, and marks for the tokens that are not predicted.

    Attributes:
        tokens: Integers [N].
        prompt: The number of tokens at the beginning that are not predicted.
        given: Bool [N], True for further tokens that are not predicted, such as the questions of a chat; None if only
            the prompt is not predicted.

    Raises:
        ShapeError: The tokens or the mask have another type or shape.
        DataError: The prompt is negative or longer than the document.
    """

    tokens: Tensor
    prompt: int = 0
    given: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, Tensor) or self.tokens.dim() != 1 or self.tokens.dtype not in INTEGERS:
            value = self.tokens
            actual = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError(f"invalid tokens of a document: {actual}, expected an integer tensor [N]")
        if self.given is not None and (self.given.dtype != torch.bool or self.given.shape != self.tokens.shape):
            actual = f"{self.given.dtype} {list(self.given.shape)}"
            raise ShapeError(f"invalid mask of a document of {len(self.tokens)} tokens: {actual}, expected bool [N]")
        if not 0 <= self.prompt <= len(self.tokens):
            raise DataError(f"invalid prompt of {self.prompt} tokens in a document of {len(self.tokens)}")


def pad_documents(documents: Sequence[Document], *, padding_id: int) -> Batch:
    """Return one row per document, padded with `padding_id` to the longest document; padding is never predicted.

    Padding is determined by the lengths, so a document may contain the token `padding_id`.
    """
    width = max((len(document.tokens) for document in documents), default=0)
    batch = batch_of_rows([[document] for document in documents], length=width, padding_id=padding_id)
    return replace(batch, segments=None)


def pack_documents(documents: Sequence[Document], *, length: int, padding_id: int) -> Batch:
    """Return rows of `length` tokens, each with the documents that `pack_sizes` places there, and their segments.

    The documents of a row are numbered from 1 in `segments`. The first token of a document is not predicted, because
    the token before it belongs to another document. Raise `DataError` if a document is longer than `length`; use
    `split_document` to cut such a document into pieces.
    """
    rows = pack_sizes([len(document.tokens) for document in documents], length)
    return batch_of_rows([[documents[index] for index in row] for row in rows], length=length, padding_id=padding_id)


def batch_of_rows(rows: Sequence[Sequence[Document]], *, length: int, padding_id: int) -> Batch:
    """Return rows of `length` tokens, each with its documents in order and their segments.

    The batch is on the CPU; `ModuleTeacher`, `ModuleStudent` and the step move its tensors to their devices.

    Args:
        rows: The documents of each row; the documents of one row have at most `length` tokens in total.
        length: T.
        padding_id: The token of all positions after the last document of a row.
    """
    tokens_BT = torch.full((len(rows), length), padding_id, dtype=torch.int64, device="cpu")
    segments_BT = torch.zeros_like(tokens_BT)
    prompts_BT = torch.zeros_like(tokens_BT, dtype=torch.bool)
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


def document_positions(batch: Batch) -> Iterator[tuple[int, Tensor]]:
    """Yield the row and the positions, int64 [N] on the CPU, of each document of a batch, in order.

    Without segments, each row counts as one document, and its padding belongs to this document.
    """
    segments_BT = torch.ones_like(batch.tokens, device="cpu") if batch.segments is None else batch.segments.cpu()
    for row, segments_T in enumerate(segments_BT):
        for number in segments_T[segments_T > 0].unique().tolist():
            yield row, (segments_T == number).nonzero().flatten()


def first_fit(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Assign every size, in order, to the first row that has room for it, else to a new row.

    The sizes of a row have a sum of at most `capacity`. Return the indices of the sizes in each row, in increasing
    order. The time is proportional to the number of sizes times the number of rows. Raise `DataError` for a size larger
    than `capacity`.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index, size in enumerate(sizes):
        if size > capacity:
            raise DataError(
                f"document {index} has {size} tokens, but a row has {capacity}; use longer rows or `split_document`"
            )
        row = next((number for number, room in enumerate(free) if size <= room), len(free))
        if row == len(free):  # no row has room
            rows.append([])
            free.append(capacity)
        rows[row].append(index)
        free[row] -= size
    return rows


def pack_sizes(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Return the indices of the sizes in each row: by first fit decreasing if that needs fewer rows than first fit.

    First fit decreasing places the largest size first. It needs at most 11/9 n + 6/9 rows, where n is the smallest
    possible number of rows (Dosa 2007). Indices increase within a row, and rows are in the order of their first index.
    Raise `DataError` for a size larger than `capacity`.
    """
    in_order = first_fit(sizes, capacity)
    largest_first = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    decreasing = first_fit([sizes[index] for index in largest_first], capacity)
    if len(decreasing) >= len(in_order):
        return in_order
    return sorted(sorted(largest_first[position] for position in row) for row in decreasing)


def split_document(document: Document, length: int) -> list[Document]:
    """Return the document in pieces of at most `length` tokens. A piece starts with the last token of the piece before.

    So every token of the document after the first can be predicted in exactly one piece. Raise `DataError` if `length`
    is less than 2.
    """
    if length < 2:
        raise DataError(f"invalid value {length} for 'length': expected at least 2, because pieces share a token")
    pieces = []
    # The - 1 in the range: no piece starts at the last token, because a piece of one token has nothing to predict.
    # The max: a document of one token or none is one piece.
    for start in range(0, max(len(document.tokens) - 1, 1), length - 1):
        tokens_N = document.tokens[start : start + length]
        given_N = None if document.given is None else document.given[start : start + length]
        pieces.append(Document(tokens_N, min(max(document.prompt - start, 0), len(tokens_N)), given_N))
    return pieces


def create_labels(
    tokens: Tensor, segments: Tensor | None = None, *, padding_id: int | None = None, prompts: Tensor | None = None
) -> Tensor:
    """Return labels, int64 [B, T]: the token if it is predicted, otherwise -100; `kd_step` shifts the labels later.

    A token is predicted if it is neither padding nor part of a prompt, and the token before it belongs to the same
    document.

    Args:
        tokens: Integers [B, T].
        segments: The number of the document of each token, from 1, and 0 for padding, [B, T]. If every row has one
            document, a bool mask that is False for padding has the same effect.
        padding_id: The token that is padding at every position where it occurs. With `segments`, `padding_id` is
            ignored, because a document may contain the same token, for example at its end.
        prompts: Bool [B, T], True for tokens of a prompt.

    Raises:
        ShapeError: The shapes differ.
    """
    _check(tokens, segments=segments, prompts=prompts)
    if segments is None:
        segments = torch.ones_like(tokens) if padding_id is None else tokens != padding_id
    predicted_BT = torch.zeros_like(tokens, dtype=torch.bool)
    predicted_BT[:, 1:] = (segments[:, 1:] != 0) & (segments[:, 1:] == segments[:, :-1])
    if prompts is not None:
        predicted_BT &= ~prompts
    return tokens.long().masked_fill(~predicted_BT, IGNORE_INDEX)


def prefix_mask(lengths: Tensor, width: int) -> Tensor:
    """Return a mask, bool [B, width], that is True at the first lengths[b] positions of row b. lengths: integers [B].

    Example: `create_labels(tokens, prefix_mask(lengths, T), prompts=prefix_mask(prompt_lengths, T))`.
    """
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def _check(tokens_BT: Tensor, **others: Tensor | None) -> None:
    """Raise `ShapeError` unless all other tensors have the shape of the tokens."""
    for name, value in others.items():
        if value is not None and value.shape != tokens_BT.shape:
            raise ShapeError(
                f"shapes do not match: tokens {list(tokens_BT.shape)}, {name} {list(value.shape)}; expected [B, T] each"
            )


PADDING = 0
"""The token of positions without a document; a document may contain this token too."""
PACKED_TOGETHER = 1000
"""Number of documents that are packed at a time. The limit is needed because the time of `first_fit` is quadratic."""
PACKING = f"first fit, or first fit decreasing, of {PACKED_TOGETHER} documents"
"""The method by which documents are packed into rows; it must be the same in a resumed run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRows:
    """Rows of documents, from which batches are made.

    Attributes:
        documents: The documents.
        order: The indices of the documents, row by row.
        ends: The end of each row in `order`.
        length: T of packed rows; None for rows of one document, which are padded to the longest row of the batch.
        batch_size: The number of rows of a batch.
        device: The device of the batches.
        first: The number of the first row among the examples of the whole text.
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

    def length_groups(self) -> LengthGroups:
        """Return the number of tokens of each row, which an epoch needs to form batches of rows of similar length."""
        sizes_N = document_sizes(self.documents)[numpy.asarray(self.order, dtype="int64")]
        # The number of tokens of a row is the difference of the cumulative sums at its end and at the previous end.
        sums_N = numpy.concatenate([[0], numpy.cumsum(sizes_N)])
        sums_at_ends = sums_N[numpy.asarray(self.ends, dtype="int64")]
        lengths = torch.from_numpy(numpy.diff(sums_at_ends, prepend=0))
        return LengthGroups(lengths=lengths, batch_size=self.batch_size)

    def batch(self, order: Tensor, position: int) -> Batch:
        """Return batch `position`, from 1, of the rows numbered in `order`, int64 [N]; packed rows have segments."""
        chosen = order[(position - 1) * self.batch_size : position * self.batch_size].tolist()
        rows = [self._row(number) for number in chosen]
        if self.length is None:
            batch = pad_documents([document for row in rows for document in row], padding_id=PADDING)
        else:
            batch = batch_of_rows(rows, length=self.length, padding_id=PADDING)
        segments = None if batch.segments is None else placed_segments(batch.segments, self.device)
        tokens_BT, labels_BT = (queued_copy(part_BT, self.device) for part_BT in (batch.tokens, batch.labels))
        examples_B = torch.tensor([self.first + number for number in chosen], dtype=torch.int64, device="cpu")
        return Batch(tokens=tokens_BT, labels=labels_BT, segments=segments, examples=examples_B)

    def _row(self, number: int) -> list[Document]:
        begin = self.ends[number - 1] if number else 0
        return [self.documents[index] for index in self.order[begin : self.ends[number]]]


def join_rows(parts: Sequence[DocumentRows]) -> DocumentRows:
    """Return the rows of several sources, one source after the other; take all other attributes from the first one."""
    order, ends, documents_before = array("q"), array("q"), 0
    for part in parts:
        rows_before = len(order)
        ends.extend(rows_before + end for end in part.ends)
        order.extend(documents_before + index for index in part.order)
        documents_before += len(part.documents)
    return replace(parts[0], documents=ChainedDocuments([part.documents for part in parts]), order=order, ends=ends)


class ChainedDocuments(Sequence[Document]):
    """The documents of several sequences, one sequence after the other."""

    def __init__(self, parts: Sequence[Sequence[Document]]) -> None:
        self._parts, self._ends = parts, list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def sizes(self) -> Sizes:
        """Return the number of tokens of each document, int64 [N]."""
        return numpy.concatenate([document_sizes(part) for part in self._parts])

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        number = range(len(self))[index]  # accepts a negative index and raises IndexError, as a list does
        part = bisect_right(self._ends, number)
        start = self._ends[part - 1] if part else 0
        return self._parts[part][number - start]


def document_rows(
    bytes_N: Tensor, separator: str, *, pack: bool, length: int, batch_size: int, device: torch.device, first: int = 0
) -> DocumentRows:
    """Return the documents of a part of a text as rows of at most `length` tokens, padded or packed.

    A longer document is cut into pieces by `split_document`. A document of one byte is left out, because it has no byte
    to predict. Raise `DataError` if no document is left.
    """
    documents = [document for document in documents_of(bytes_N, separator) if len(document.tokens) > 1]
    pieces = [piece for document in documents for piece in split_document(document, length)]
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
    """Return documents of at most `length` tokens as rows: one padded document per row, or several packed documents.

    The tokens of a document are read only when its batch is formed, or, unless `documents` has `sizes`, also to know
    its length when it is packed.

    Args:
        documents: The documents.
        pack: Whether a row can have several documents.
        length: The number of tokens of a packed row.
        batch_size: The number of rows of a batch.
        device: The device of the batches.
        first: The number of the first row among the examples of the whole text.
    """
    order, ends = array("q"), array("q")
    rows = _packed_rows(documents, length) if pack else ([index] for index in range(len(documents)))
    for row in rows:
        order.extend(row)
        ends.append(len(order))
    return DocumentRows(
        documents=documents,
        order=order,
        ends=ends,
        length=length if pack else None,
        batch_size=batch_size,
        device=device,
        first=first,
    )


def documents_of(bytes_N: Tensor, separator: str) -> list[Document]:
    """Return the documents of a text, uint8 [N], in order. Every byte of the text belongs to one document."""
    end = separator.encode("utf-8", "surrogateescape")
    *complete, rest = bytes_N.numpy().tobytes().split(end)
    sizes = [*(len(part) + len(end) for part in complete), len(rest)]
    return [Document(part_N) for part_N in torch.split(bytes_N, sizes) if len(part_N)]


def _packed_rows(documents: Sequence[Document], length: int) -> Iterator[list[int]]:
    """Yield the indices of the documents of each row."""
    sizes_N = document_sizes(documents)
    for start in range(0, len(sizes_N), PACKED_TOGETHER):
        for row in pack_sizes(sizes_N[start : start + PACKED_TOGETHER].tolist(), length):
            yield [start + index for index in row]


def document_sizes(documents: Sequence[Document]) -> Sizes:
    """Return the number of tokens of each document, int64 [N]; of documents with `sizes`, without reading tokens."""
    if isinstance(documents, HasSizes):
        return documents.sizes()
    return numpy.fromiter((len(document.tokens) for document in documents), dtype="int64", count=len(documents))


Sizes = numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]


@runtime_checkable
class HasSizes(Protocol):
    """Documents whose numbers of tokens are known without reading tokens: stored documents, and sequences of these."""

    def sizes(self) -> Sizes:
        """Return the number of tokens of each document, int64 [N]."""


TOKENS, ENDS = "tokens", "ends"
"""Names of the files of stored documents; the docstring of the module has their format."""


def write_documents(directory: Path, documents: Iterable[Document]) -> None:
    """Write documents, one at a time, to two files in a directory. Raise `OSError` if writing fails."""
    end = 0
    with (directory / TOKENS).open("wb") as tokens, (directory / ENDS).open("wb") as ends:
        for document in documents:
            tokens_N = document.tokens.to(torch.int32)
            given_N = torch.zeros_like(tokens_N, dtype=torch.bool) if document.given is None else document.given.clone()
            given_N[: document.prompt] = True
            # A complement is negative, so the sign of a stored number tells whether the token is predicted.
            tokens.write(torch.where(given_N, ~tokens_N, tokens_N).numpy().tobytes())
            end += len(tokens_N)
            ends.write(end.to_bytes(8, "little"))


class StoredDocuments(Sequence[Document]):
    """The documents that `write_documents` has written, or a slice of these documents.

    A document is read from the files when it is indexed.

    Tokens are read, not memory-mapped, because mapped pages count as memory of the process.
    """

    def __init__(self, directory: Path) -> None:
        self._tokens = (directory / TOKENS).open("rb")
        # Document n begins at `_bounds[n]` and ends at `_bounds[n + 1]`.
        self._bounds = numpy.concatenate([[0], numpy.fromfile(directory / ENDS, dtype="<i8")])
        self._numbers = range(len(self._bounds) - 1)  # the numbers of the documents of this slice

    def __len__(self) -> int:
        return len(self._numbers)

    def sizes(self) -> Sizes:
        """Return the number of tokens of each document, int64 [N]."""
        numbers_N = numpy.arange(self._numbers.start, self._numbers.stop, self._numbers.step)
        sizes_N: Sizes = self._bounds[numbers_N + 1] - self._bounds[numbers_N]
        return sizes_N

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> StoredDocuments: ...
    def __getitem__(self, index: int | slice) -> Document | StoredDocuments:
        if isinstance(index, slice):
            part = object.__new__(StoredDocuments)
            part._tokens, part._bounds, part._numbers = self._tokens, self._bounds, self._numbers[index]
            return part
        number = self._numbers[index]
        # `pread` does not use the position of the open file, which processes share after a fork.
        begin, end = int(self._bounds[number]), int(self._bounds[number + 1])
        content = os.pread(self._tokens.fileno(), 4 * (end - begin), 4 * begin)
        stored_N = torch.from_numpy(numpy.frombuffer(content, dtype="<i4").astype("int64"))
        given_N = stored_N < 0
        return Document(torch.where(given_N, ~stored_N, stored_N), given=given_N)
