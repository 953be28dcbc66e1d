"""The documents of packed rows, computed on the host once a batch, and the arguments that attention kernels need.

A forward that asks the device where documents begin waits for all operations queued there, in every layer. The host
knows it when the batch is made, so only copies to the device are queued here.

Shape letters: B batch, T position, D documents, N blocks of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

BLOCK = 128
"""Positions of a block of `flex_attention`, its default."""


class PackedRows:
    """The lengths of the documents of packed rows, which cover every position: the padding of a row is a document too.

    What is on a device is kept, so that all layers share it, also when activations are computed again.

    Args:
        lengths: Of each row, the numbers of tokens of its documents, in order.
    """

    def __init__(self, lengths: Sequence[Sequence[int]]) -> None:
        self.rows = tuple(tuple(row) for row in lengths)
        self._placed: dict[tuple[object, ...], Any] = {}

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of the documents of all rows, one row after the other."""
        return list(chain.from_iterable(self.rows))

    @cached_property
    def max_length(self) -> int:
        """The length of the longest document."""
        return max(self.lengths, default=0)

    @cached_property
    def numbers(self) -> Tensor:
        """The number of the document of each position in its row, from 0, int32 [B, T] on the CPU."""
        rows = [torch.repeat_interleave(torch.tensor(row, device="cpu")) for row in self.rows]
        return torch.stack(rows).int()

    def cu_seq_lens(self, device: torch.device) -> Tensor:
        """Return the positions where documents begin in the joined rows, and their number B T: int32 [D + 1]."""
        key = ("cu_seq_lens", device)
        if key not in self._placed:
            ends = list(accumulate(self.lengths, initial=0))
            self._placed[key] = queued_copy(torch.tensor(ends, dtype=torch.int32, device="cpu"), device)
        placed: Tensor = self._placed[key]
        return placed

    def block_mask(self, device: torch.device, window: int | None = None) -> Any:
        """Return the `BlockMask` of causal attention within documents.

        Blocks are classified on the host from the first and last document in each, as documents are in order. A block
        in which every query sees every key is full, and needs no mask.

        Args:
            device: Where the mask is used.
            window: Number of positions that a query sees, with itself; None sees its whole document.
        """
        key = ("block_mask", device, window)
        if key not in self._placed:
            self._placed[key] = self._new_block_mask(device, window)
        return self._placed[key]

    def _new_block_mask(self, device: torch.device, window: int | None) -> Any:
        from torch.nn.attention.flex_attention import BlockMask

        numbers_BT, width = self.numbers, self.numbers.shape[1]
        starts_N = torch.arange(0, width, BLOCK, device="cpu")
        first_BN, last_BN = numbers_BT[:, starts_N], numbers_BT[:, (starts_N + BLOCK - 1).clamp(max=width - 1)]
        blocks_N = torch.arange(len(starts_N), device="cpu")
        apart_NN = blocks_N[:, None] - blocks_N  # of queries and keys, in blocks
        seen_BNN = (apart_NN >= 0) & (last_BN[:, None, :] >= first_BN[:, :, None])
        full_BNN = (apart_NN > 0) & (first_BN[:, None, :] == last_BN[:, :, None])
        if window is not None:
            seen_BNN &= (apart_NN - 1) * BLOCK + 1 < window  # the smallest distance of a query and a key
            full_BNN &= (apart_NN + 1) * BLOCK - 1 < window  # the largest one
        # A key block at the end of the row has positions outside of it.
        full_BNN &= starts_N + BLOCK <= width
        placed_BT = queued_copy(numbers_BT, device)

        def is_seen(b: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            seen = (query >= key) & (placed_BT[b, query] == placed_BT[b, key])
            return seen if window is None else seen & (query - key < window)

        def listed(blocks_BNN: Tensor) -> list[Tensor]:
            """Return the numbers of blocks, [B, 1, N], and their indices, [B, 1, N, N], in the last axis."""
            indices_BNN = blocks_BNN.byte().argsort(dim=-1, descending=True, stable=True)
            lists = blocks_BNN.sum(-1, dtype=torch.int32), indices_BNN.int()
            return [queued_copy(part[:, None], device) for part in lists]

        part_BNN = seen_BNN & ~full_BNN
        # The forward runs over the key blocks of a query block, the backward over the query blocks of a key block.
        kv, full_kv, q, full_q = map(listed, (part_BNN, full_BNN, part_BNN.mT, full_BNN.mT))
        return BlockMask(
            seq_lengths=(width, width),
            kv_num_blocks=kv[0],
            kv_indices=kv[1],
            full_kv_num_blocks=full_kv[0],
            full_kv_indices=full_kv[1],
            q_num_blocks=q[0],
            q_indices=q[1],
            full_q_num_blocks=full_q[0],
            full_q_indices=full_q[1],
            BLOCK_SIZE=(BLOCK, BLOCK),
            mask_mod=is_seen,
        )


def packed_rows(segments_BT: Tensor) -> PackedRows:
    """Return the documents of segments, integers [B, T]: runs of equal numbers in a row.

    They are kept with the tensor. Without them, a device is waited for, once.
    """
    kept: Any = segments_BT  # a tensor takes attributes, which its type does not declare
    rows: PackedRows | None = getattr(kept, "packed_rows", None)
    if rows is None:
        rows = kept.packed_rows = PackedRows(
            [row.unique_consecutive(return_counts=True)[1].tolist() for row in segments_BT.cpu()]
        )
    return rows


def placed_segments(segments_BT: Tensor, device: torch.device) -> Tensor:
    """Return segments on a device, with their documents if the host knows them without a wait."""
    placed: Any = queued_copy(segments_BT, device)
    if segments_BT.device.type == "cpu" or hasattr(segments_BT, "packed_rows"):
        placed.packed_rows = packed_rows(segments_BT)
    moved: Tensor = placed
    return moved


def queued_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, itself if it is there. A copy from the CPU to CUDA is queued and not waited for.

    PyTorch waits for a copy from pageable memory. The allocator of pinned memory keeps it until the copy has run.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
