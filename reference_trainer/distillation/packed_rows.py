"""Lengths of the documents in packed rows, as attention kernels need them.

Reading the bounds of documents from the device would wait for all queued operations, in every layer. The host knows the
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

    The tensors on a device are cached, so that all layers share them, also when activations are recomputed.

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
            device: The device on which the mask is used.
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
        distance_NN = blocks_N[:, None] - blocks_N  # from the key block to the query block, in blocks
        seen_BNN = (distance_NN >= 0) & (last_BN[:, None, :] >= first_BN[:, :, None])
        full_BNN = (distance_NN > 0) & (first_BN[:, None, :] == last_BN[:, :, None])
        if window is not None:
            # The smallest and the largest distance of a query and a key of the two blocks, in positions.
            seen_BNN &= (distance_NN - 1) * BLOCK + 1 < window
            full_BNN &= (distance_NN + 1) * BLOCK - 1 < window
        # The last key block of a row may have positions outside of the row, which the mask must exclude.
        full_BNN &= starts_N + BLOCK <= width
        device_numbers_BT = queued_copy(numbers_BT, device)

        def is_seen(b: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            seen = (query >= key) & (device_numbers_BT[b, query] == device_numbers_BT[b, key])
            return seen if window is None else seen & (query - key < window)

        def counts_and_indices(blocks_BNN: Tensor) -> tuple[Tensor, Tensor]:
            """Return the number of blocks in each row of the last axis, [B, 1, N], and their indices, [B, 1, N, N]."""
            counts_BN = blocks_BNN.sum(-1, dtype=torch.int32)
            # A stable sort puts the indices of the blocks first, in order; the kernel reads only these.
            indices_BNN = blocks_BNN.byte().argsort(dim=-1, descending=True, stable=True).int()
            return queued_copy(counts_BN[:, None], device), queued_copy(indices_BNN[:, None], device)

        partial_BNN = seen_BNN & ~full_BNN
        # The forward runs over the key blocks of a query block, the backward over the query blocks of a key block.
        kv_num_blocks, kv_indices = counts_and_indices(partial_BNN)
        full_kv_num_blocks, full_kv_indices = counts_and_indices(full_BNN)
        q_num_blocks, q_indices = counts_and_indices(partial_BNN.mT)
        full_q_num_blocks, full_q_indices = counts_and_indices(full_BNN.mT)
        return BlockMask(
            seq_lengths=(width, width),
            kv_num_blocks=kv_num_blocks,
            kv_indices=kv_indices,
            full_kv_num_blocks=full_kv_num_blocks,
            full_kv_indices=full_kv_indices,
            q_num_blocks=q_num_blocks,
            q_indices=q_indices,
            full_q_num_blocks=full_q_num_blocks,
            full_q_indices=full_q_indices,
            BLOCK_SIZE=(BLOCK, BLOCK),
            mask_mod=is_seen,
        )


def packed_rows(segments_BT: Tensor) -> PackedRows:
    """Return the lengths of the documents in rows that have the number of the document at each position.

    The result is stored as an attribute of the tensor. A tensor on a device without this attribute is copied to the
    host, which waits for the device once.

    Args:
        segments_BT: Integers [B, T]; a document is a run of equal numbers in a row.
    """
    tensor: Any = segments_BT  # a tensor accepts attributes that its type does not declare
    rows: PackedRows | None = getattr(tensor, "packed_rows", None)
    if rows is None:
        rows = tensor.packed_rows = PackedRows(
            [row.unique_consecutive(return_counts=True)[1].tolist() for row in segments_BT.cpu()]
        )
    return rows


def placed_segments(segments_BT: Tensor, device: torch.device) -> Tensor:
    """Return segments on a device, with `PackedRows` as an attribute if the lengths are known without a wait."""
    placed_BT = queued_copy(segments_BT, device)
    if segments_BT.device.type == "cpu" or hasattr(segments_BT, "packed_rows"):
        tensor: Any = placed_BT  # as in `packed_rows`
        tensor.packed_rows = packed_rows(segments_BT)
    return placed_BT


def queued_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; the same object if already there. A copy from the CPU to CUDA is only queued."""
    # PyTorch waits for a copy from pageable memory, so the tensor is pinned first. The allocator of pinned memory does
    # not reuse the memory before the copy has run.
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
