"""Documents of chats in the tokens of two tokenizers, and the groups of tokens that spell the same text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import overload

import torch
from torch import Tensor

from reference_trainer.data.documents import Document, Sizes, StoredDocuments, document_sizes, write_documents
from reference_trainer.data.workers import ordered_map
from reference_trainer.distillation.universal import answer_groups
from reference_trainer.errors import DataError
from reference_trainer.huggingface.chats import BLOCK, COUNTS, Chats

Side = tuple[list[int], list[bool]]
"""The tokens of a document, and a mask of the tokens that are not predicted."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PairedDocument(Document):
    """A document in the student's tokens, with the same text in the teacher's; see `universal.Paired`."""

    teacher_tokens: Tensor
    groups: Tensor


@dataclass(frozen=True, slots=True)
class PairedDocuments(Sequence[Document]):
    """Documents in the tokens of student and teacher, and their groups. A document is read when it is indexed.

    Attributes:
        student: The documents in the student's tokens.
        teacher: The same documents in the teacher's tokens.
        flat_groups: For each document, its groups [G, 4], stored flat as the tokens of a document. A group has start
            and end in the student's tokens, then start and end in the teacher's.
    """

    student: Sequence[Document]
    teacher: Sequence[Document]
    flat_groups: Sequence[Document]

    def __len__(self) -> int:
        return len(self.student)

    def sizes(self) -> Sizes:
        """Return the number of the student's tokens of each document, int64 [N]."""
        return document_sizes(self.student)

    @overload
    def __getitem__(self, index: int) -> PairedDocument: ...
    @overload
    def __getitem__(self, index: slice) -> PairedDocuments: ...
    def __getitem__(self, index: int | slice) -> PairedDocument | PairedDocuments:
        if isinstance(index, slice):
            return PairedDocuments(self.student[index], self.teacher[index], self.flat_groups[index])
        student, groups = self.student[index], self.flat_groups[index].tokens.view(-1, 4)
        return PairedDocument(
            student.tokens, given=student.given, teacher_tokens=self.teacher[index].tokens, groups=groups
        )


def check_pairs(path: Path, student: Chats, teacher: Chats) -> None:
    """Raise `DataError` if `student` and `teacher` do not have the same conversations."""
    sizes = len(student.documents), len(teacher.documents)
    if student.continues == teacher.continues and sizes[0] == sizes[1]:
        return
    raise DataError(
        f"{path} has {sizes[0]} documents in the student's chat template and {sizes[1]} in the teacher's, "
        "which belong to different turns or rows; --cross-tokenizer needs the same documents. A template that renders "
        "earlier turns differently splits a conversation: use --turns last, or another --chat-template for the student"
    )


def write_pairs(student: Chats, teacher: Chats, tokenizers: Sequence[object], directory: Path, *, workers: int) -> None:
    """Write the groups of all documents into a directory.

    Args:
        student: The documents in the student's tokens.
        teacher: The same documents, in the same order.
        tokenizers: The tokenizers of student and teacher.
        directory: An empty directory.
        workers: The number of processes that align the tokens; 0 for this process.

    Raises:
        DataError: If no document has a group.
    """
    counts = Counter[str]()

    # The G groups of a document are stored as a document of 4 G numbers, so that they can be read one by one.
    def aligned() -> Iterator[Document]:
        for block in ordered_map(partial(_align_block, tokenizers), _blocks(student, teacher), workers):
            for scored, groups in block:
                compared = sum(end - begin for begin, end, _, _ in groups)
                counts.update(scored=scored, compared=compared, without=scored > 0 and not groups)
                yield Document(torch.tensor(groups, dtype=torch.int64).flatten())

    write_documents(directory, aligned())
    if not counts["compared"]:
        raise DataError("no answer has the same text in the tokens of student and teacher; compare the chat templates")
    (directory / COUNTS).write_text(json.dumps(counts), encoding="utf-8")


def _blocks(student: Chats, teacher: Chats) -> Iterator[list[tuple[Side, Side]]]:
    """Yield blocks of `BLOCK` pairs: a document in the student's tokens, and the same in the teacher's."""
    pairs = zip(student.documents, teacher.documents, strict=True)
    while block := [(_side(first), _side(second)) for first, second in islice(pairs, BLOCK)]:
        yield block


def _side(document: Document) -> Side:
    """Return a document as lists, which are cheap to send to a worker."""
    assert document.given is not None  # documents of chats have a mask
    return document.tokens.tolist(), document.given.tolist()


def _align_block(tokenizers: Sequence[object], block: Sequence[tuple[Side, Side]]) -> list[tuple[int, list[list[int]]]]:
    """Return, for every document, the number of predicted tokens of the student and the groups."""
    aligned = []
    for sides in block:
        groups = answer_groups(tokenizers, sides)
        (_, unpredicted), _ = sides  # of the student
        scored = sum(not is_unpredicted for is_unpredicted in unpredicted[1:])
        aligned.append((scored, [[a.start, a.stop, b.start, b.stop] for a, b in groups]))
    return aligned


def read_pairs(directory: Path, student: Chats, teacher: Chats) -> tuple[PairedDocuments, list[str]]:
    """Return the documents with the groups from `write_pairs`, and notes about tokens that are not compared."""
    counts = json.loads((directory / COUNTS).read_text(encoding="utf-8"))
    scored, compared, without = (counts[name] for name in ("scored", "compared", "without"))
    lines = [f"{compared:,} of {scored:,} predicted tokens are compared with the teacher's"]
    if compared < scored:
        lines[0] += "; for the others, the teacher's text is cut, or its chat template writes it differently"
    if without:
        lines.append(f"{without:,} documents have no token that is compared with the teacher's")
    return PairedDocuments(student.documents, teacher.documents, StoredDocuments(directory)), lines
