"""Kernels for CUDA replaced by attention in float64 with NumPy, as their documentation describes their arguments.

What a kernel would not compute is NaN: queries behind `max_seqlen`, and positions outside of every document.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import modeling_flash_attention_utils
from transformers.integrations import flex_attention
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.modeling_utils import AttentionInterface

Array = NDArray[np.float64]
FLASH_ATTENTION_2 = "flash_attention_2"
assert flash_attention_forward is not None  # imported with its full name, which preloads it


def attention(
    query: Array,
    key: Array,
    value: Array,
    scale: float,
    seen: NDArray[np.bool_],
    softcap: float | None = None,
    sink: float = -np.inf,
) -> Array:
    """Return softmax(scale q k) v over the keys that are seen. Arrays [n, D]; seen: bool [queries, keys].

    softcap: c in c tanh(score / c). sink: a score that takes part in the softmax, and has no value.
    """
    scores = query @ key.T * scale
    scores = np.where(seen, scores if softcap is None else softcap * np.tanh(scores / softcap), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    sums = weights.sum(-1, keepdims=True) + np.exp(sink - scores.max(-1, keepdims=True))
    return np.asarray(weights / sums @ value)


def causal(length: int, window: int | None) -> NDArray[np.bool_]:
    """Return which keys a query sees: itself and those before it, at most `window` in all."""
    apart = np.arange(length)[:, None] - np.arange(length)
    return (apart >= 0) & (apart < (length if window is None else window))


def documents_alone(
    tensors: Sequence[Tensor],
    rows: list[list[int]],
    scale: float,
    window: int | None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Array:
    """Return the attention of every document by itself, [B, T, H, D], of queries, keys and values [B, H, T, D].

    softcap, sinks [H]: see `attention`.
    """
    query, key, _ = tensors
    states = [x.detach().cpu().double().numpy() for x in tensors]
    out = np.full(np.swapaxes(states[0], 1, 2).shape, np.nan)
    for b, lengths in enumerate(rows):
        for begin, length in zip(np.cumsum([0, *lengths]), lengths, strict=False):
            at = slice(int(begin), int(begin) + length)
            for h in range(query.shape[1]):
                kv = h * key.shape[1] // query.shape[1]
                parts = states[0][b, h, at], states[1][b, kv, at], states[2][b, kv, at]
                sink = -np.inf if sinks is None else float(sinks[h])
                out[b, at, h] = attention(*parts, scale, causal(length, window), softcap, sink)
    return out


def one_document(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    *,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attend causally, as transformers calls it, in the data type of the states; `eager` rounds to float32."""
    shared = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(shared, dim=1) for states in (key, value))
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * scaling
    scores = scores if softcap is None else (scores / softcap).tanh() * softcap
    seen = torch.from_numpy(causal(query.shape[2], sliding_window))
    weights = scores.exp() * seen
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.einsum("bhqk,bhkd->bqhd", weights, value), None


ORACLE = "float64_oracle"
AttentionInterface.register(ORACLE, one_document)


def by_length(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, scale: float, left: int
) -> Tensor:
    """Attend as kernels of variable lengths do. States [N, H, D]; left: keys before a query that it sees, or -1."""
    assert bounds.dtype == torch.int32, f"cu_seqlens is {bounds.dtype}, and kernels read int32"
    assert bounds.device == query.device, f"cu_seqlens is on {bounds.device}, and the queries on {query.device}"
    states = [x.detach().cpu().double().numpy() for x in (query, key, value)]
    out = np.full(states[0].shape, np.nan)
    ends = bounds.cpu().tolist()
    for begin, end in pairwise(ends):
        at = slice(begin, min(end, begin + longest))
        for h in range(query.shape[1]):
            kv = h * key.shape[1] // query.shape[1]
            seen = causal(at.stop - begin, None if left < 0 else left + 1)
            out[at, h] = attention(states[0][at, h], states[1][at, kv], states[2][at, kv], scale, seen)
    return torch.from_numpy(out).to(query.device)


def flash_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Attend as `flash_attn.flash_attn_varlen_func`."""
    assert causal and dropout_p == 0.0, f"causal {causal}, dropout_p {dropout_p}"
    assert type(max_seqlen_q) is int, f"max_seqlen_q is a {type(max_seqlen_q).__name__}"
    assert torch.equal(cu_seqlens_q.cpu(), cu_seqlens_k.cpu()) and max_seqlen_q == max_seqlen_k
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return by_length(q, k, v, cu_seqlens_q, max_seqlen_q, scale, window_size[0])


def torch_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """Attend as `torch.nn.attention.varlen.varlen_attn`."""
    assert window_size[1] == 0, f"window_size {window_size} is not causal"
    assert enable_gqa or query.shape[1] == key.shape[1], "fewer heads of keys need enable_gqa"
    assert torch.equal(cu_seq_q.cpu(), cu_seq_k.cpu()) and max_q == max_k
    return by_length(query, key, value, cu_seq_q, max_q, scale, window_size[0])


def flex(query: Tensor, key: Tensor, value: Tensor, *, block_mask: Any, scale: float, **_: Any) -> Any:
    """Attend as the compiled `flex_attention`: full blocks whole, blocks that are listed by `mask_mod`, no others."""
    size, (B, H, T, _D) = block_mask.BLOCK_SIZE[0], query.shape
    states = [x.detach().cpu().double().numpy() for x in (query, key, value)]
    out = np.full(states[0].shape, np.nan)
    place = torch.arange(T, device=query.device)
    for b in range(B):
        seen = np.zeros((T, T), bool)
        by_mask = block_mask.mask_mod(torch.tensor(b), torch.tensor(0), place[:, None], place[None]).cpu().numpy()
        lists = [(block_mask.kv_num_blocks, block_mask.kv_indices, by_mask)]
        lists += [(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, np.ones_like(by_mask))]
        for numbers, indices, values in lists:
            for i, number in enumerate(numbers[b, 0].cpu().tolist()):
                for j in indices[b, 0, i, :number].cpu().tolist():
                    at = np.s_[i * size : (i + 1) * size, j * size : (j + 1) * size]
                    seen[at] |= values[at]
        for h in range(H):
            kv = h * key.shape[1] // H
            out[b, h] = attention(states[0][b, h], states[1][b, kv], states[2][b, kv], scale, seen)
    return torch.from_numpy(out).to(query.device), SimpleNamespace(lse=torch.zeros(B, H, T, device=query.device))


@contextmanager
def replaced(
    flash: Callable[..., Any] = flash_varlen,
    varlen: Callable[..., Any] = torch_varlen,
    flexible: Callable[..., Any] = flex,
) -> Iterator[list[str]]:
    """Replace the kernels; yield the names by which the one of flash-attn is loaded."""
    from torch.nn.attention import varlen as torch_kernels

    names: list[str] = []

    def loaded(implementation: str, *_: object, **options: object) -> Any:
        names.append(implementation)
        process = modeling_flash_attention_utils._lazy_define_process_function(flash)
        return (None, flash, None, None, None), (process, dict)

    with (
        mock.patch.object(modeling_flash_attention_utils, "lazy_import_flash_attention", loaded),
        mock.patch.object(torch_kernels, "varlen_attn", varlen),
        mock.patch.object(flex_attention, "compile_friendly_flex_attention", flexible),
    ):
        yield names
