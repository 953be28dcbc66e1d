"""Attacks on documents that are kept in files: what is read back, and what is in memory."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.chats.tokenizer import Tokenizer
from reference_trainer.data.documents import Document, pack_documents, pad_documents, rows_of_documents

CPU = torch.device("cpu")
LENGTH = 6
GROWTH = 64 * 1024
"""Bytes, less than the documents of a hundred rows take."""


@st.composite
def documents(draw: st.DrawFn) -> Document:
    tokens = draw(st.lists(st.sampled_from([0, 1, 2**31 - 1, 151_935]), min_size=1, max_size=LENGTH))
    given = draw(st.none() | st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    mask = None if given is None else torch.tensor(given)
    return Document(torch.tensor(tokens), prompt=draw(st.integers(0, len(tokens))), given=mask)


@given(written=st.lists(documents(), max_size=5), pack=st.booleans())
def falsify_stored_documents_make_the_same_rows(subject: Any, written: list[Document], pack: bool) -> None:
    """In any order, from both parts of the data."""
    with tempfile.TemporaryDirectory() as folder:
        subject.write_documents(Path(folder), written)
        stored = subject.StoredDocuments(Path(folder))
        cut = len(written) // 2
        for own, read in ((written[:cut], stored[:cut]), (written[cut:], stored[cut:])):
            shape: Any = {"length": LENGTH, "batch_size": len(own) or 1, "device": CPU}
            rows = rows_of_documents(read, pack=pack, **shape)
            if not own:
                assert len(rows) == 0, f"{len(rows)} rows of no document"
                continue
            made = pack_documents(own, length=LENGTH, padding_id=0) if pack else pad_documents(own, padding_id=0)
            found = rows.batch(torch.arange(len(rows)).flip(0), 1)
            assert found.tokens.tolist() == made.tokens.flip(0).tolist(), "other tokens"
            assert found.labels.tolist() == made.labels.flip(0).tolist(), "other labels"


def _peak(subject: Any, folder: Path, rows: int) -> int:
    """Return the peak of the memory of Python while so many rows are written and made into batches."""
    (folder / "chats.jsonl").write_text((json.dumps({"prompt": "abc", "completion": "abc"}) + "\n") * rows)
    tracemalloc.start()
    subject.write_chats(folder / "chats.jsonl", subject.ChatWriter(Tokenizer()), 99, folder)
    documents = subject.read_chats(folder).documents
    rows_of_documents(documents, pack=False, length=99, batch_size=2, device=CPU)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@given(more=st.integers(400, 800))
def falsify_memory_does_not_grow_with_the_data(subject: Any, more: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _peak(subject, Path(folder), 2)  # what is imported or cached by the first call
        few, many = (_peak(subject, Path(folder), rows) for rows in (20, more))
    assert many - few < GROWTH, f"{more} rows take {many - few} bytes more than 20"
