"""Text as tokens: bytes, cut into sequences, in an order that follows from seed, epoch and position alone.

The text that the trainer reads unless told otherwise is the language reference of CPython 3.11.7 as the interpreter
ships it for `help()`: English prose by people, frozen here because it differs from one Python version to the next. Its
licence lies beside it.
Shape letters: B batch, T position, N bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from reference_trainer.errors import DataError
from reference_trainer.protocols import Batch

__all__ = ["VOCABULARY", "Sequences", "Text", "epoch_order", "frozen_text", "read_text"]

VOCABULARY = 256
_FROZEN = files(__package__) / "text" / "python-topics.txt"


def frozen_text() -> bytes:
    """The frozen English text: UTF-8 bytes, the same on every machine and Python version (about 466 kB)."""
    return _FROZEN.read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text in two parts: the last tenth, rounded up, is held back, never trained on. uint8 [N] each.

    digest: SHA-256 of the whole, in hexadecimal digits.
    """

    name: str
    training: Tensor
    held_back: Tensor
    digest: str


def read_text(path: Path | None, length: int) -> Text:
    """The bytes of a file, mapped rather than read, or the frozen text; enough for sequences of `length` tokens.

    Errors: `DataError` for what isn't a readable regular file, or where either part is shorter than one sequence.
    """
    name = "the frozen text" if path is None else str(path)
    bytes_N, digest = _frozen() if path is None else _mapped(path)
    cut = len(bytes_N) * 9 // 10
    if min(cut, len(bytes_N) - cut) < length:
        raise DataError(
            f"{name} holds {len(bytes_N)} bytes; sequences of {length} need at least {10 * (length - 1) + 1}, because "
            f"a tenth is held back: give a longer text or a smaller length"
        )
    return Text(name=name, training=bytes_N[:cut], held_back=bytes_N[cut:], digest=digest)


def _frozen() -> tuple[Tensor, str]:
    content = frozen_text()
    return torch.frombuffer(bytearray(content), dtype=torch.uint8), hashlib.sha256(content).hexdigest()


def _mapped(path: Path) -> tuple[Tensor, str]:
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is no regular file; expected a file of text")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    if size == 0:
        return torch.empty(0, dtype=torch.uint8), digest
    try:
        return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8, device="cpu"), digest
    except RuntimeError as error:  # files of /proc, for one, can be read and not mapped
        raise DataError(f"{path} can't be mapped into memory: {error}; give a copy of it") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """A part of a text as sequences of T = `length` bytes, each starting with the last byte of the one before.

    So every byte but the first is predicted exactly once; a rest shorter than a sequence is left out.
    """

    bytes_N: Tensor
    length: int
    batch_size: int
    device: torch.device

    def __len__(self) -> int:
        """How many sequences there are."""
        return max(len(self.bytes_N) - 1, 0) // (self.length - 1)

    @property
    def batches(self) -> int:
        """How many batches an epoch has; the last may be smaller."""
        return -(-len(self) // self.batch_size)

    def batch(self, order: Tensor, position: int) -> Batch:
        """Batch `position` (from 1) of the sequences taken in `order`; every token is a label too."""
        chosen = order[(position - 1) * self.batch_size : position * self.batch_size]
        starts = (chosen * (self.length - 1)).tolist()
        tokens_BT = torch.stack([self.bytes_N[start : start + self.length] for start in starts])
        tokens_BT = tokens_BT.to(self.device, torch.int64)
        return Batch(tokens=tokens_BT, labels=tokens_BT)


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, count: int) -> Tensor:
    """The order of `count` sequences in an epoch: a permutation [count] that follows from the arguments alone."""
    key = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:7]))
    return torch.randperm(count, generator=generator, device="cpu")
