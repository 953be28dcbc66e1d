"""A text in a file, its sequences, and the batches of an epoch."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@contextmanager
def file_of(content: bytes, name: bytes = b"text") -> Iterator[Path]:
    """Yield the path of a temporary file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(os.fsdecode(os.fsencode(directory) + b"/" + name))
        path.write_bytes(content)
        yield path


def sequences_of(subject: Any, text: Tensor, length: int, batch_size: int = 3, device: str = "cpu") -> Any:
    return subject.Sequences(bytes_N=text, length=length, batch_size=batch_size, device=torch.device(device))


def epoch(subject: Any, sequences: Any, seed: int = 0, number: int = 1) -> list[Any]:
    """Return the batches of an epoch, as a run asks for them."""
    order = subject.epoch_order(seed, number, len(sequences))
    return [sequences.batch(order, position) for position in range(1, sequences.batches + 1)]
