"""Wrong versions of public functions: the faults that the contract declares."""

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
