"""Batches of documents that can only be read in order, such as an `IterableDataset` of the package datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from reference_trainer.data.documents import (
    PACKED_TOGETHER,
    PADDING,
    Document,
    batch_of_rows,
    pack_sizes,
    pad_documents,
)
from reference_trainer.distillation.protocols import Batch
from reference_trainer.errors import DataError


@dataclass(kw_only=True)
class StreamedBatches:
    """Batches of the documents that a function yields for each epoch, distributed to the ranks batch by batch.

    A batch depends only on epoch and position, so a resumed run has the batches of an uninterrupted one. To reach a
    later batch, the documents before it are read and dropped; to reach an earlier batch, the epoch is read again from
    its first document. Memory holds the documents of one batch, or `PACKED_TOGETHER` documents while they are packed.

    Attributes:
        documents: Returns the documents of an epoch, counted from 1, in an order that depends only on the epoch. A
            document has at most `length` tokens.
        batches: The number of batches of an epoch on a rank; further documents of an epoch are not read.
        length: T, the tokens of a packed row.
        batch_size: The number of rows of a batch.
        pack: Whether a row has several documents, which `Batch.segments` numbers.
        rank: The rank of this process.
        world_size: The number of processes.
    """

    documents: Callable[[int], Iterable[Document]]
    batches: int
    length: int
    batch_size: int
    pack: bool = False
    rank: int = 0
    world_size: int = 1
    _epoch: int = field(default=0, init=False)
    _read: int = field(default=0, init=False)  # batches of all ranks that were read in this epoch
    _rows: Iterator[list[Document]] = field(default_factory=lambda: iter(()), init=False)

    def batch(self, epoch: int, position: int) -> Batch:
        """Return batch `position` of this rank in an epoch, both from 1, on the CPU.

        Raises:
            DataError: If the epoch has too few documents, or a document is longer than a packed row.
        """
        # Counting from 0, batch i of rank r is batch i * world_size + r of the stream; `position` counts from 1.
        # `before` is the number of batches of the stream before this batch.
        before = (position - 1) * self.world_size + self.rank
        if epoch != self._epoch or before < self._read:  # read the epoch from its beginning
            self._epoch, self._read, self._rows = epoch, 0, self._rows_of(epoch)
        for _ in islice(self._rows, (before - self._read) * self.batch_size):  # drop the rows of earlier batches
            pass
        rows = list(islice(self._rows, self.batch_size))
        self._read = before + 1
        if len(rows) < self.batch_size:
            needed = self.batches * self.world_size * self.batch_size
            raise DataError(
                f"epoch {epoch} of the stream ends before batch {position} of {self.batches}: expected {needed} rows "
                f"for batches of {self.batch_size} on {self.world_size} ranks; use fewer batches"
            )
        if self.pack:
            return batch_of_rows(rows, length=self.length, padding_id=PADDING)
        return pad_documents([document for row in rows for document in row], padding_id=PADDING)

    def _rows_of(self, epoch: int) -> Iterator[list[Document]]:
        """Yield the documents of each row of an epoch."""
        documents = iter(self.documents(epoch))
        if not self.pack:
            yield from ([document] for document in documents)
            return
        while documents_read := list(islice(documents, PACKED_TOGETHER)):
            for row in pack_sizes([len(document.tokens) for document in documents_read], self.length):
                yield [documents_read[number] for number in row]
