"""Attention within the documents of packed rows, for models of transformers.

`isolate_documents` registers one attention function for each implementation that a model may have. `Causal` passes the
documents of a batch to it, a `PackedRows`, through the keyword arguments of the model. The function calls a kernel of
variable lengths on CUDA, and on the CPU attends to the documents one by one; neither forms a mask of length x length:

    sdpa               torch.nn.attention.varlen, for 16-bit states on GPUs that have it
    flash_attention_*  the package's kernel, by transformers' function of that name
    flex_attention     torch's, with one block mask a batch and window

Shape letters: B batch, H heads, T position, N = B * T, D width of a head.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from reference_trainer.distillation.packed_rows import PackedRows
from reference_trainer.errors import SettingError

SDPA, FLEX, FLASH = "sdpa", "flex_attention", "flash"
PROBE, BY_DOCUMENT = "document_probe", "by_document"
Attention = Callable[..., tuple[Tensor, Any]]
ISOLATED = 1e-3
"""Largest difference of a logit, relative to the largest one, between a document alone and one in a packed row."""


def attend_documents(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    documents: PackedRows | None = None,
    *,
    implementation: str = SDPA,
    **options: Any,
) -> tuple[Tensor, Any]:
    """Return causal attention within documents, [B, T, H, D], as transformers calls its attention functions.

    Args:
        module: The attention layer of the model.
        query: [B, H, T, D]; key and value may have fewer heads.
        key: See `query`.
        value: See `query`.
        attention_mask: Used without documents alone, as the implementation does.
        documents: Of the batch, which need no mask; None for other batches.
        implementation: The model's, whose kernel is called on CUDA.
        options: Of transformers' attention functions: `scaling`, `dropout`, `sliding_window`, `softcap`, `s_aux`, ...
    """
    if query.device.type == "cpu":
        if documents is None:
            return _dense_attention(options)(module, query, key, value, attention_mask, **options)
    elif documents is None:
        return _library_attention(implementation)(
            _renamed(module, implementation), query, key, value, attention_mask, **options
        )
    elif FLASH in implementation:
        return attend_by_flash(module, query, key, value, documents, implementation, **options), None
    elif implementation == FLEX:
        mask = documents.block_mask(query.device, options.pop("sliding_window", None))
        return _library_attention(FLEX)(module, query, key, value, mask, **options)
    elif has_varlen(query, value, options):
        return attend_by_length(query, key, value, documents, **options), None
    return attend_in_turn(module, query, key, value, documents, **options), None


def attend_by_flash(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    documents: PackedRows,
    implementation: str,
    **options: Any,
) -> Tensor:
    """Return the attention of transformers' function `implementation`, with its `FlashAttentionKwargs`, [B, T, H, D].

    `position_ids` are left out: they would be read from the device, and only for one row.
    """
    options.pop("position_ids", None)
    bounds, longest = documents.cu_seq_lens(query.device), documents.max_length
    attended, _ = _library_attention(implementation)(
        _renamed(module, implementation),
        query,
        key,
        value,
        None,
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
        max_length_q=longest,
        max_length_k=longest,
        **options,
    )
    return attended


def attend_by_length(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    documents: PackedRows,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> Tensor:
    """Return the attention of PyTorch's kernel of variable lengths, [B, T, H, D]; see `has_varlen`."""
    from torch.nn.attention import varlen

    bounds, longest = documents.cu_seq_lens(query.device), documents.max_length
    window = (-1, 0) if sliding_window is None or sliding_window >= longest else (sliding_window - 1, 0)
    query_NHD, key_NHD, value_NHD = (_joined(states) for states in (query, key, value))
    out_NHD = varlen.varlen_attn(
        query_NHD,
        key_NHD,
        value_NHD,
        bounds,
        bounds,
        longest,
        longest,
        scale=scaling,
        window_size=window,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(out_NHD, Tensor)  # it returns more with `return_aux`
    return out_NHD.view(len(query), -1, *out_NHD.shape[1:])


def has_varlen(query: Tensor, value: Tensor, options: dict[str, Any]) -> bool:
    """Return whether PyTorch has a kernel of variable lengths for these states on CUDA."""
    if query.dtype not in (torch.float16, torch.bfloat16) or options.get("dropout"):
        return False
    if any(options.get(name) is not None for name in ("softcap", "s_aux", "position_bias")):
        return False
    if query.shape[-1] != value.shape[-1] or query.shape[-1] > 256 or query.shape[-1] % 8:
        return False
    return _varlen_on(query.device)


def _varlen_on(device: torch.device) -> bool:
    if not torch.backends.cuda.is_flash_attention_available() or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        import torch.nn.attention.varlen as varlen  # PyTorch 2.13 has its `enable_gqa`
    except ImportError:
        return False
    return "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters


def attend_in_turn(
    module: Any, query: Tensor, key: Tensor, value: Tensor, documents: PackedRows, **options: Any
) -> Tensor:
    """Return the attention of each document by itself, [B, T, H, D], by scaled dot products or, with caps, plainly."""
    window = options.pop("sliding_window", None)
    attend = _dense_attention(options)
    # `split` has one backward, a concatenation; slices would each add a gradient of the length of the row.
    parts = [_joined(states).split(documents.lengths) for states in (query, key, value)]
    attended = []
    for states in zip(*parts, strict=True):
        length = len(states[0])
        mask = None if window is None or window >= length else _band(length, window, query.device)
        attended.append(attend(module, *(part.transpose(0, 1)[None] for part in states), mask, **options)[0])
    return torch.cat(attended, dim=1).reshape(query.shape[0], query.shape[2], query.shape[1], value.shape[3])


def attend_plainly(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return causal attention, [B, T, H, D], with capped scores (Gemma 2) and sinks (`s_aux` [H], gpt-oss)."""
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    length = query.shape[2]
    seen = _band(length, length, query.device) if mask is None else mask
    scores = scores.masked_fill(~seen, -torch.inf)
    if s_aux is not None:
        sinks = s_aux.to(scores.dtype).view(1, -1, 1, 1).expand(len(scores), -1, length, 1)
        scores = torch.cat([scores, sinks], dim=-1)
    shares = scores.softmax(-1)[..., :length]
    return (nn.functional.dropout(shares, dropout) @ value).transpose(1, 2), None


def _band(length: int, window: int, device: torch.device) -> Tensor:
    """Return which keys each query sees, bool [T, T]: itself and the `window` - 1 keys before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril().triu(1 - window)


def _joined(states_BHTD: Tensor) -> Tensor:
    """Return states as kernels of variable lengths take them, [N, H, D]."""
    return states_BHTD.transpose(1, 2).flatten(0, 1)


def _library_attention(implementation: str) -> Attention:
    from transformers import AttentionInterface

    function: Attention = AttentionInterface()[implementation]
    return function


def _dense_attention(options: dict[str, Any]) -> Attention:
    """Return attention with or without a mask on any device: that of `sdpa`, unless it lacks one of the options."""
    is_plain = options.get("softcap") is not None or options.get("s_aux") is not None
    return attend_plainly if is_plain else _library_attention(SDPA)


def _renamed(module: Any, implementation: str) -> Any:
    """Return a layer whose configuration names an implementation, by which the library loads the kernel."""
    return _Overlay(module, config=_Overlay(module.config, _attn_implementation=implementation))


def _mask(implementation: str, **options: Any) -> Any:
    """Return the mask that `attend_documents` takes without documents."""
    from transformers import AttentionMaskInterface

    on_cpu = torch.device(options.get("device", "cpu")).type == "cpu"
    return AttentionMaskInterface()[SDPA if on_cpu else implementation](**options)


class _Overlay:
    """An object with other values of some attributes."""

    def __init__(self, under: Any, **values: Any) -> None:
        self._under = under
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)


def isolate_documents(name: str, model: Any, note: Callable[[str], object]) -> None:
    """Let attention stay within the documents of a packed row without a mask; `note` takes a line if it needs one.

    1. The model runs packed rows with masks. The mask of each layer is compared with the window that the layer passes
       to its attention function. If they differ, the layer needs its mask.
    2. It runs them without masks, which has to give equal logits.
    3. If a step fails, transformers' own attention with its masks stays.

    On the CPU a model with a kernel for CUDA attends as with the others, so the steps try what the model passes on.

    Args:
        name: Of the model, for messages.
        model: A `Causal`, whose configuration names the implementation: `model.config._attn_implementation`.
        note: Takes a line.

    Raises:
        SettingError: For a model in which a document sees the one before it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    transformer = model.model
    implementation = transformer.config._attn_implementation
    if implementation in (SDPA, FLEX) or FLASH in implementation:
        matches: list[bool] = []  # of each call of a layer with a mask: whether it passes the mask's window
        chosen = f"{BY_DOCUMENT}_{implementation.replace(FLASH, 'varlen').replace('/', '_')}"
        AttentionInterface.register(PROBE, partial(_probe, matches))
        AttentionMaskInterface.register(PROBE, _marked_mask)
        AttentionInterface.register(chosen, partial(attend_documents, implementation=implementation))
        AttentionMaskInterface.register(chosen, partial(_mask, implementation))
        transformer.set_attn_implementation(PROBE)
        masked = check_isolation(name, model)
        if matches and all(matches):
            transformer.set_attn_implementation(chosen)
            with suppress(TypeError, ValueError, RuntimeError, IndexError):  # of a model that takes no such arguments
                if equal_logits(check_isolation(name, model), masked, ISOLATED):
                    return
        if FLASH in implementation:  # transformers separates documents for it in batches of one row alone
            raise SettingError(
                f"{name}: {implementation} cannot separate the documents of packed rows in "
                f"{type(transformer).__name__}; use another attention implementation or --documents pad"
            )
        transformer.set_attn_implementation(implementation)
    else:
        check_isolation(name, model)
    note(f"{name}: attention in packed rows forms a mask of length x length")


def takes_documents(transformer: Any) -> bool:
    """Return whether the attention of a model takes the documents of a batch, as `isolate_documents` has set it."""
    config = getattr(transformer, "config", None)
    return (getattr(config, "_attn_implementation", None) or "").startswith(BY_DOCUMENT)


def leave_uncompiled(transformer: Any) -> None:
    """Let `torch.compile` leave out the attention of a model that takes documents.

    Lengths of documents are numbers of the host, for which it would compile each batch again.
    """
    from transformers import AttentionInterface

    if takes_documents(transformer):
        name = transformer.config._attn_implementation
        attend: Any = torch.compiler.disable(AttentionInterface()[name])
        AttentionInterface.register(name, attend)


def _probe(
    matches: list[bool], module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, Any]:
    """Attend with a mask, and record whether its window is the one of the layer."""
    window, bias = options.pop("sliding_window", None), options.get("position_bias")
    if attention_mask is not None:
        matches.append(bias is None and getattr(attention_mask, "window", PROBE) == window)
    return _dense_attention(options)(module, query, key, value, attention_mask, **options)


def _marked_mask(**options: Any) -> Any:
    """Return the mask of `sdpa` with its window, or without one for an unusual mask."""
    from transformers.masking_utils import sdpa_mask

    mask: Any = sdpa_mask(**options)
    if mask is not None and not options.get("use_vmap"):
        mask.window = options.get("local_size")
    return mask


@torch.no_grad()
def check_isolation(name: str, model: Any) -> Tensor:
    """Return logits of two packed rows. Raise `SettingError` if a document in them sees another one."""
    device = next(model.parameters(), torch.empty(0)).device
    tokens = torch.arange(16, device=device).view(2, 8) % model.vocab_size
    segments = torch.tensor([[1] * 4 + [2] * 4, [1] * 3 + [2] * 5], device=device)
    was_training = model.training
    model.eval()
    packed: Tensor = model(tokens, segments).logits
    alone = [model(tokens[row : row + 1, begin:]).logits for row, begin in ((0, 4), (1, 3))]
    model.train(was_training)
    pairs = zip((packed[:1, 4:], packed[1:, 3:]), alone, strict=True)
    if not all(equal_logits(part, expected, ISOLATED) for part, expected in pairs):
        raise SettingError(
            f"{name}: the documents of a packed row see each other in {type(model.model).__name__}; use --documents pad"
        )
    return packed


def equal_logits(actual: Tensor, expected: Tensor, at_most: float) -> bool:
    """Return whether logits differ by at most this much of the largest one, or by the rounding of their data type."""
    rounding = 8 * torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0.0
    atol = max(at_most, rounding) * float(expected.abs().max())
    return bool(torch.isclose(actual.to(expected), expected, rtol=0.0, atol=atol, equal_nan=True).all())
