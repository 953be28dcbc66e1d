"""Wrong versions of functions about chats."""

from __future__ import annotations

from typing import Any


def all_in_memory(original: Any, directory: Any, documents: Any) -> None:
    original(directory, list(documents))


def given_forgotten(original: Any, directory: Any, documents: Any) -> None:
    from reference_trainer.data.batches import Document

    original(directory, (Document(each.tokens) for each in documents))


def documents_joined(original: Any, attend: Any, query: Any, key: Any, value: Any, positions: Any) -> Any:
    return original(attend, query, key, value, (positions * 0 + 1).index_fill(1, positions.new_tensor([0]), 0))
