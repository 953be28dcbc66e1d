"""Lengths of the documents in packed rows, as attention kernels need them.

Reading from the device where documents begin would wait for all queued operations, in every layer. The host knows the
lengths when the batch is made, so this module only queues copies to the device.

Shape letters: B batch, T position, D documents, N blocks of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128
"""The number of positions of a block of `flex_attention`: its default."""


class PackedRows:
    """The lengths of the documents of packed rows. Padding at the end of a row counts as a document.

    Tensors on a device are made once, so all layers share them, also when activations are computed again.

    Args:
        lengths: For each row, the lengths of its documents in order, in tokens. All rows have the same sum.
    """

    def __init__(self, lengths: Sequence[Sequence[int]]) -> None:
        self.rows = tuple(tuple(row) for row in lengths)
        self._bounds: dict[torch.device, Tensor] = {}
        self._masks: dict[tuple[torch.device, int | None], BlockMask] = {}

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
        """The number of the document at each position, from 0 in each row, int32 [B, T] on the CPU."""
        rows = [torch.repeat_interleave(torch.tensor(row, device="cpu")) for row in self.rows]
        return torch.stack(rows).int()

    def cu_seq_lens(self, device: torch.device) -> Tensor:
        """Return the bounds of documents in the joined rows, from 0 to B T: int32 [D + 1], as for FlashAttention."""
        if device not in self._bounds:
            bounds = list(accumulate(self.lengths, initial=0))
            self._bounds[device] = queued_copy(torch.tensor(bounds, dtype=torch.int32, device="cpu"), device)
        return self._bounds[device]

    def block_mask(self, device: torch.device, window: int | None = None) -> BlockMask:
        """Return the `BlockMask` of causal attention within documents.

        Args:
            device: Where the mask is used.
            window: The number of positions that a query sees, including itself; None for its whole document.
        """
        key = (device, window)
        if key not in self._masks:
            self._masks[key] = self._new_block_mask(device, window)
        return self._masks[key]

    def _new_block_mask(self, device: torch.device, window: int | None) -> BlockMask:
        from torch.nn.attention.flex_attention import BlockMask

        # A pair of a query block and a key block is empty, partial (`is_seen` masks its elements), or full (every query
        # sees every key, and the kernel skips the mask). Documents are in order, so the first and last document of the
        # blocks decide: blocks that share no document are empty, different blocks of one document are full.
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

        partial_BNN = seen_BNN & ~full_BNN
        # The forward runs over the key blocks of a query block, the backward over the query blocks of a key block.
        kv, full_kv, q, full_q = map(listed, (partial_BNN, full_BNN, partial_BNN.mT, full_BNN.mT))
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

    The result is stored as an attribute of the tensor. A tensor on a device without this attribute is copied to the
    host, which waits for the device once.
    """
    tensor: Any = segments_BT  # a tensor takes attributes that its type does not declare
    rows: PackedRows | None = getattr(tensor, "packed_rows", None)
    if rows is None:
        rows = tensor.packed_rows = PackedRows(
            [row.unique_consecutive(return_counts=True)[1].tolist() for row in segments_BT.cpu()]
        )
    return rows


def placed_segments(segments_BT: Tensor, device: torch.device) -> Tensor:
    """Return segments on a device, with `PackedRows` as an attribute if the host knows the lengths without a wait."""
    placed: Any = queued_copy(segments_BT, device)
    if segments_BT.device.type == "cpu" or hasattr(segments_BT, "packed_rows"):
        placed.packed_rows = packed_rows(segments_BT)
    moved: Tensor = placed
    return moved


def queued_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, the same object if it is there. A copy from the CPU to CUDA does not wait."""
    # PyTorch waits for a copy from pageable memory, so the tensor is pinned first. The allocator of pinned memory does
    # not reuse the memory before the copy has run.
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
