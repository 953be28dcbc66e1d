"""Text as tokens: bytes, cut into sequences, in batches whose order depends on seed and epoch only.

The default text is the language reference of CPython 3.11.7 as the interpreter ships it for `help()`: English prose,
packaged because it differs from one Python version to the next. Its licence is in the same directory.
Shape letters: B batch, T position, N bytes.
"""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, Protocol

import torch
from torch import Tensor

from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.packed_rows import queued_copy
from reference_trainer.distillation.protocols import Batch
from reference_trainer.errors import DataError, similar_path

VOCABULARY = 256
_PACKAGED = files(__package__) / "corpus" / "python-topics.txt"


def packaged_text() -> bytes:
    """Return the packaged English text: UTF-8 bytes, equal on every machine and Python version (about 466 kB)."""
    return _PACKAGED.read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text in two parts: the last tenth, rounded up, is held back and never trained on.

    Attributes:
        name: The path, or a description.
        training: The first part, uint8 [N].
        held_back: The last part, uint8 [N].
        digest: SHA-256 of the whole text, in hexadecimal digits.
    """

    name: str
    training: Tensor
    held_back: Tensor
    digest: str


def read_text(path: Path | None, length: int) -> Text:
    """Return the bytes of a file, mapped into memory, or the packaged text if `path` is None.

    Raise `DataError` if the file is not a readable regular file, or either part is shorter than `length` bytes.
    """
    name = "the packaged text" if path is None else str(path)
    bytes_N, digest = _read_packaged() if path is None else _map_file(path)
    cut = len(bytes_N) * 9 // 10
    if min(cut, len(bytes_N) - cut) < length:
        raise DataError(
            f"{name} holds {len(bytes_N)} bytes; sequences of {length} need at least {10 * (length - 1) + 1}, because "
            f"a tenth is held back: use a longer text or a smaller length"
        )
    return Text(name=name, training=bytes_N[:cut], held_back=bytes_N[cut:], digest=digest)


def share_of(text: Text, share: float, length: int) -> Tensor:
    """Return the first `share` of the training part, rounded down. Raise `DataError` if it is below `length` bytes."""
    chosen = text.training[: int(len(text.training) * share)]
    if len(chosen) < length:
        raise DataError(
            f"a data_share of {share:g} leaves {len(chosen)} bytes of {text.name} to train on; sequences of {length} "
            f"need at least {length}: use a larger share"
        )
    return chosen


def _read_packaged() -> tuple[Tensor, str]:
    """Return the bytes of the packaged text, uint8 [N], and its SHA-256."""
    content = packaged_text()
    return torch.frombuffer(bytearray(content), dtype=torch.uint8), hashlib.sha256(content).hexdigest()


def _map_file(path: Path) -> tuple[Tensor, str]:
    """Return the bytes of a file, uint8 [N], mapped into memory, and its SHA-256."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path} is not a regular file; expected a text file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            # The position after reading is the number of bytes that were digested, even if the file grows.
            return _map_descriptor(file, file.tell()), digest
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}{similar_path(path)}") from error
    except RuntimeError as error:  # some files, such as in /proc, can be read but not mapped
        raise DataError(f"cannot map {path} into memory: {error}; expected a file on a disk") from error


def _map_descriptor(file: BinaryIO, size: int) -> Tensor:
    """Return the first `size` bytes of `file`, uint8 [size]; writing into the tensor does not change the file."""
    # Map it by its descriptor, because torch takes no file name that is not UTF-8.
    return torch.from_file(f"/dev/fd/{file.fileno()}", shared=False, size=size, dtype=torch.uint8, device="cpu")


class Rows(Protocol):
    """A part of a text as rows of tokens, such as `Sequences`."""

    @property
    def device(self) -> torch.device:
        """Return the device of the batches."""
        ...

    @property
    def batches(self) -> int:
        """Return the number of batches of an epoch; the last may be smaller."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def batch(self, order: Tensor, position: int) -> Batch:
        """Return batch `position` (from 1) of the rows whose numbers are in `order`, int64; they may be repeated."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """A part of a text as sequences of T = `length` bytes, each starting with the last byte of the previous one.

    Every byte but the first is therefore predicted exactly once; an incomplete last sequence is omitted.

    Attributes:
        bytes_N: The text, uint8 [N].
        length: The number of bytes of a sequence, at least 2.
        batch_size: The number of sequences of a batch.
        device: The device of the batches.
        first: The number of the first sequence among the examples of the whole text.
    """

    bytes_N: Tensor
    length: int
    batch_size: int
    device: torch.device
    first: int = 0

    def __len__(self) -> int:
        """Return the number of sequences."""
        return max(len(self.bytes_N) - 1, 0) // (self.length - 1)

    @property
    def batches(self) -> int:
        """The number of batches of an epoch; the last may be smaller."""
        return -(-len(self) // self.batch_size)

    def batch(self, order: Tensor, position: int) -> Batch:
        """Return batch `position` (from 1) of the sequences in `order`, int64 [B, T]; every token is also a label."""
        chosen = order[(position - 1) * self.batch_size : position * self.batch_size]
        starts = (chosen * (self.length - 1)).tolist()
        tokens_BT = torch.stack([self.bytes_N[start : start + self.length] for start in starts])
        # Converted on the device, so that uint8 is transferred instead of int64.
        tokens_BT = queued_copy(tokens_BT, self.device).to(torch.int64)
        return Batch(tokens=tokens_BT, labels=tokens_BT, examples=chosen + self.first)


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, count: int) -> Tensor:
    """Return the order of `count` sequences in an epoch, int64 [count], which depends on the arguments only."""
    return permutation(f"{seed}/{epoch}", count)


def permutation(key: str, count: int) -> Tensor:
    """Return a permutation of `count` numbers, int64 [count], drawn with a seed from the digest of the key."""
    # A hash, so that similar keys give unrelated permutations; 56 bits, because a seed must be below 2^63.
    digest = hashlib.sha256(key.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
    return torch.randperm(count, generator=generator, device="cpu")


WINDOW = 50
"""Number of batches whose rows are sorted by length together.

A larger window gives more similar lengths in a batch, a smaller one a more random choice of rows.
"""
BLOCK = 8
"""Number of consecutive batches of similar lengths that stay together, so that ranks have similar work."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LengthGroups:
    """Rows in batches of similar lengths.

    Attributes:
        lengths: The number of tokens of each row, int64 [N].
        batch_size: The number of rows of a batch.
    """

    lengths: Tensor
    batch_size: int

    @property
    def batches(self) -> int:
        """Return the number of batches of an epoch; the last may be smaller."""
        return -(-len(self.lengths) // self.batch_size)

    def order(self, seed: int, epoch: int) -> Tensor:
        """Return the order of the rows in an epoch; see `grouped_order`."""
        return grouped_order(seed, epoch, self)


@lru_cache(maxsize=2)
def grouped_order(seed: int, epoch: int, groups: LengthGroups) -> Tensor:
    """Return the order of rows in an epoch, in batches of similar lengths, which depends on the arguments only.

    1. Divide the order of `epoch_order` into windows of `WINDOW` batches.
    2. Sort every window by length, the longest first. No other division of its rows into batches needs less padding.
    3. If the last batch of the epoch is smaller, choose its rows as consecutive rows of the last window such that the
       padding is least.
    4. Shuffle blocks of `BLOCK` batches; the smaller batch stays last.
    """
    # Steps 1 and 2. The sort is stable, so that rows of equal lengths stay in random order.
    size, count = groups.batch_size, len(groups.lengths)
    order = epoch_order(seed, epoch, count)
    windows = [part[groups.lengths[part].argsort(descending=True, stable=True)] for part in order.split(WINDOW * size)]
    # Step 3. A batch is as wide as its first, longest row.
    rest = order[:0]
    if windows and (smaller := count % size):
        last = windows[-1]
        lengths: list[int] = groups.lengths[last].tolist()

        def padded_tokens(at: int) -> int:
            """Return the number of tokens of the window, with padding, if the smaller batch begins at row `at`."""
            begins = [*range(0, at, size), *range(at + smaller, len(lengths), size)]
            total: int = size * sum(lengths[begin] for begin in begins) + smaller * lengths[at]
            return total

        at = min(range(0, len(lengths), size), key=padded_tokens)
        rest = last[at : at + smaller]
        windows[-1] = torch.cat([last[:at], last[at + smaller :]])
    # Step 4, with the smaller batch at the end.
    blocks = torch.cat(windows).split(BLOCK * size) if windows else ()
    shuffled = [blocks[number] for number in permutation(f"{seed}/{epoch}/runs", len(blocks)).tolist()]
    return torch.cat([*shuffled, rest])


class EpochOrder(Protocol):
    """An order of the rows of epochs, other than `epoch_order`, such as `LengthGroups`."""

    @property
    def batches(self) -> int:
        """Return the number of batches of an epoch; the last may be smaller."""
        ...

    def order(self, seed: int, epoch: int) -> Tensor:
        """Return the numbers of the rows of an epoch, int64, which depend on the arguments only."""
        ...


class Batches(Protocol):
    """The batches of a run. They can be read in any order; equal arguments return equal batches."""

    @property
    def batches(self) -> int:
        """Return the number of batches of an epoch, the same for every rank."""
        ...

    def batch(self, epoch: int, position: int) -> Batch:
        """Return batch `position` of this rank in an epoch, both from 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledBatches:
    """The rows of a text, shuffled anew in each epoch, distributed to the ranks batch by batch.

    A rank without a batch in the last round gets one row whose labels are all ignored, so that it joins the collectives
    without changing the loss.

    Attributes:
        sequences: The rows: `Sequences`, or another kind of `Rows`.
        seed: The seed of the order.
        rank: The rank of this process.
        world_size: The number of processes.
        order: The order of the rows of an epoch; None for `epoch_order`.
    """

    sequences: Rows
    seed: int
    rank: int = 0
    world_size: int = 1
    order: EpochOrder | None = None

    @property
    def batches(self) -> int:
        """Return the number of batches of an epoch, the same for every rank."""
        return -(-self._all_batches // self.world_size)

    @property
    def _all_batches(self) -> int:
        """Return the number of batches of an epoch of all ranks together."""
        return self.sequences.batches if self.order is None else self.order.batches

    def batch(self, epoch: int, position: int) -> Batch:
        """Return batch `position` of this rank in an epoch, both from 1."""
        if self.order is None:
            order = epoch_order(self.seed, epoch, len(self.sequences))
        else:
            order = self.order.order(self.seed, epoch)
        number = (position - 1) * self.world_size + self.rank + 1  # of the batch among the batches of all ranks, from 1
        if number <= self._all_batches:
            return self.sequences.batch(order, number)
        tokens_1T = self.sequences.batch(order, 1).tokens[:1]
        return Batch(tokens=tokens_1T, labels=torch.full_like(tokens_1T, IGNORE_INDEX))
