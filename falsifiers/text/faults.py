"""Faults of reading a text, as wrong versions of `read_text`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch


def digest_of_the_name(original: Any, path: Any, length: int) -> Any:
    """Hash the path instead of the content."""
    return replace(original(path, length), digest=hashlib.sha256(str(path).encode()).hexdigest())


def packaged_text_cut(original: Any, path: Any, length: int) -> Any:
    """Read only the first part of the packaged text."""
    text = original(path, length)
    return text if path is not None else replace(text, training=text.training[: 2**16])


def a_byte_more_required(original: Any, path: Any, length: int) -> Any:
    """Refuse a text whose held-back part is just long enough."""
    text = original(path, length)
    if len(text.held_back) <= length:
        raise ValueError(f"{path} is too short for sequences of {length}")
    return text


def file_opened_unchecked(original: Any, path: Any, length: int) -> Any:
    """Open the file before anything is known about it, which waits for the writer of a FIFO."""
    Path(path).open("rb").close()
    return original(path, length)


def mapping_shared(original: Any, path: Any, length: int) -> Any:
    """Share the mapping with the file, so that writing into tokens writes into the user's file."""
    text = original(path, length)
    size = len(text.training) + len(text.held_back)
    tokens = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
    return replace(text, training=tokens[: len(text.training)], held_back=tokens[len(text.training) :])
