"""Wrong versions of public functions: the faults that the contract `text-documents` declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def separator_dropped(original: Any, bytes_N: Any, separator: str) -> Any:
    """Return documents without their separators."""
    size = len(separator.encode())
    documents = original(bytes_N, separator)
    kept = [each.tokens[:-size] if _ends(each, separator) else each.tokens for each in documents]
    return [replace(documents[0], tokens=tokens) for tokens in kept if len(tokens)]


def _ends(document: Any, separator: str) -> bool:
    return bytes(document.tokens.tolist()).endswith(separator.encode())


def last_document_dropped(original: Any, bytes_N: Any, separator: str) -> Any:
    """Leave out a last document without a separator."""
    return [each for each in original(bytes_N, separator) if _ends(each, separator)]


def long_documents_cut(original: Any, document: Any, length: int) -> Any:
    """Keep the first piece of a long document only."""
    return original(document, length)[:1]


def segments_dropped(original: Any, rows: Any, **named: Any) -> Any:
    """Pack documents into rows without segments, so that each attends to those before it."""
    return replace(original(rows, **named), segments=None)


def padding_predicted(original: Any, documents: Any, *, padding_id: int) -> Any:
    """Score padding as well."""
    batch = original(documents, padding_id=padding_id)
    labels = batch.tokens.clone()
    labels[:, 0] = -100
    return replace(batch, labels=labels)


def order_ignored(original: Any, rows: Any, order: Any, position: int) -> Any:
    """Return the rows in the order of the text."""
    return original(rows, order.sort().values, position)
