"""Documents in files, of which only those of a batch are in memory.

`tokens` has the tokens of all documents as int32, one that is given as its bitwise complement; `ends` has the number of
tokens up to the end of each as int64.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

import numpy
import torch

from reference_trainer.data.batches import Document

__all__ = ["StoredDocuments", "write_documents"]

TOKENS, ENDS = "tokens", "ends"


def write_documents(directory: Path, documents: Iterable[Document]) -> None:
    """Write documents into two files of a directory, one after the other. Errors: `OSError`."""
    end = 0
    with (directory / TOKENS).open("wb") as tokens, (directory / ENDS).open("wb") as ends:
        for document in documents:
            tokens_N = document.tokens.to(torch.int32)
            given_N = torch.zeros_like(tokens_N, dtype=torch.bool) if document.given is None else document.given.clone()
            given_N[: document.prompt] = True
            tokens.write(torch.where(given_N, ~tokens_N, tokens_N).numpy().tobytes())
            end += len(tokens_N)
            ends.write(end.to_bytes(8, "little"))


class StoredDocuments(Sequence[Document]):
    """The documents that `write_documents` has written, or a slice of them. Each is read when it is asked for.

    Tokens are read and not mapped, since mapped pages count as memory of the process.
    """

    def __init__(self, directory: Path) -> None:
        self._tokens = (directory / TOKENS).open("rb")
        self._ends = numpy.fromfile(directory / ENDS, dtype="<i8")
        self._numbers = range(len(self._ends))

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> StoredDocuments: ...
    def __getitem__(self, index: int | slice) -> Document | StoredDocuments:
        if isinstance(index, slice):
            part = object.__new__(StoredDocuments)
            part._tokens, part._ends, part._numbers = self._tokens, self._ends, self._numbers[index]
            return part
        number = self._numbers[index]
        begin, end = int(self._ends[number - 1]) if number else 0, int(self._ends[number])
        content = os.pread(self._tokens.fileno(), 4 * (end - begin), 4 * begin)
        stored_N = torch.from_numpy(numpy.frombuffer(content, dtype="<i4").astype("int64"))
        given_N = stored_N < 0
        return Document(torch.where(given_N, ~stored_N, stored_N), given=given_N)
