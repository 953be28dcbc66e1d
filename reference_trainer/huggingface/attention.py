"""Attention within the documents of packed rows, for models of transformers.

`isolate_documents` sets the attention function of a model to `attend_documents`. `Causal` passes the documents of a
batch, a `PackedRows`, to this function through the keyword arguments of the model. On CUDA, the function calls a kernel
for sequences of variable lengths; on the CPU, and for `sdpa` without such a kernel, it computes the attention document
by document. Neither allocates a mask for a whole row: a sliding window, a soft cap and attention sinks need a mask for
one document at a time. The kernel depends on the attention implementation of the model:

    sdpa               torch.nn.attention.varlen, for 16-bit states on GPUs that have it
    flash_attention_*  the kernel of the package, called by transformers' function of that name
    flex_attention     torch's kernel, with one block mask for each batch and window

Shape letters: B batch, H heads, T position, N = B * T, D width of a head.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from reference_trainer.distillation.packed_rows import PackedRows
from reference_trainer.errors import SettingError

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask
    from transformers import PreTrainedModel

    from reference_trainer.huggingface.models import Causal

SDPA, FLEX, FLASH = "sdpa", "flex_attention", "flash"
PROBE, BY_DOCUMENT = "document_probe", "by_document"
Attention = Callable[..., tuple[Tensor, Tensor | None]]
"""An attention function of transformers, which returns the attention [B, T, H, D], and the weights or None."""
ISOLATED = 1e-3
"""Largest allowed difference between logits in a packed row and the expected logits, relative to the largest logit.

The expected logits are computed for the document alone, or the row with masks. Rounding of the dtype is also allowed.
"""


def attend_documents(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    documents: PackedRows | None = None,
    *,
    implementation: str = SDPA,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return causal attention within documents, with the signature of transformers' attention functions.

    Args:
        module: The attention layer of the model.
        query: [B, H, T, D].
        key: [B, H', T, D], where H' divides H (grouped queries).
        value: Like `key`.
        attention_mask: The mask for a batch without documents; ignored for a batch with documents.
        documents: The documents of a packed batch; None for other batches.
        implementation: The attention implementation of the model. Its kernel is called on CUDA.
        options: Options of attention functions: `scaling`, `dropout`, `sliding_window`, `softcap`, `s_aux`, ...

    Returns:
        The attention [B, T, H, D], and the weights if the implementation returns them, else None.
    """
    on_cpu = query.device.type == "cpu"
    if documents is None and on_cpu:
        return _dense_attention(options)(module, query, key, value, attention_mask, **options)
    if documents is None:
        layer = _renamed(module, implementation)
        return _library_attention(implementation)(layer, query, key, value, attention_mask, **options)
    if on_cpu:
        return attend_each_document(module, query, key, value, documents, **options), None
    if FLASH in implementation:
        return attend_by_flash(module, query, key, value, documents, implementation, **options), None
    if implementation == FLEX:
        mask = documents.block_mask(query.device, options.pop("sliding_window", None))
        return _library_attention(FLEX)(module, query, key, value, mask, **options)
    if has_varlen(query, value, options):
        return attend_by_length(query, key, value, documents, **options), None
    return attend_each_document(module, query, key, value, documents, **options), None


def attend_by_flash(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    documents: PackedRows,
    implementation: str,
    **options: object,
) -> Tensor:
    """Return the attention [B, T, H, D] within the documents, by the function `implementation` of transformers."""
    # Without `position_ids`, transformers uses the bounds below. From `position_ids` it would compute its own bounds,
    # which works for a single row only and waits for the device.
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
    **_: object,
) -> Tensor:
    """Return the attention [B, T, H, D] by PyTorch's kernel for variable lengths; requires `has_varlen`."""
    from torch.nn.attention import varlen

    bounds, longest = documents.cu_seq_lens(query.device), documents.max_length
    # A window is the number of keys to the left and to the right of a query, without the query itself; -1 is no limit.
    window = (-1, 0) if sliding_window is None or sliding_window >= longest else (sliding_window - 1, 0)
    query_NHD, key_NHD, value_NHD = (_join_rows(states) for states in (query, key, value))
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
    assert isinstance(out_NHD, Tensor)  # the kernel returns a tuple only with `return_aux`
    return out_NHD.view(len(query), -1, *out_NHD.shape[1:])


def has_varlen(query: Tensor, value: Tensor, options: dict[str, object]) -> bool:
    """Return whether PyTorch has a kernel for variable lengths for these states and options on their GPU."""
    if query.dtype not in (torch.float16, torch.bfloat16) or options.get("dropout"):
        return False
    if any(options.get(name) is not None for name in ("softcap", "s_aux", "position_bias")):
        return False
    if query.shape[-1] != value.shape[-1] or query.shape[-1] > 256 or query.shape[-1] % 8:
        return False
    return _varlen_on(query.device)


def _varlen_on(device: torch.device) -> bool:
    """Return whether the GPU and this version of PyTorch have the kernel for variable lengths."""
    if not torch.backends.cuda.is_flash_attention_available() or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        import torch.nn.attention.varlen as varlen  # from PyTorch 2.13 on, it has `enable_gqa`
    except ImportError:
        return False
    return "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters


def attend_each_document(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, documents: PackedRows, **options: Any
) -> Tensor:
    """Return the attention [B, T, H, D], computed document by document."""
    window = options.pop("sliding_window", None)
    attend = _dense_attention(options)
    # Use `split`, whose backward is one concatenation. The backward of a slice would be a tensor as long as all rows,
    # for every document.
    parts = [_join_rows(states).split(documents.lengths) for states in (query, key, value)]
    attended = []
    for document in zip(*parts, strict=True):  # the query, the key and the value of one document
        length = len(document[0])
        mask = None if window is None or window >= length else _band(length, window, query.device)
        states = [part.transpose(0, 1)[None] for part in document]  # [1, H, length, D]
        attended.append(attend(module, *states, mask, **options)[0])
    return torch.cat(attended, dim=1).reshape(query.shape[0], query.shape[2], query.shape[1], value.shape[3])


def attend_plainly(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Return causal attention [B, T, H, D] with options that `sdpa` does not have.

    All scores [B, H, T, T] are in memory at once.

    Args:
        module: Ignored.
        query: [B, H, T, D].
        key: [B, H', T, D], where H' divides H.
        value: Like `key`.
        mask: Bool, broadcast to [B, H, T, T]: True for the keys that a query sees; None for a causal mask.
        scaling: The factor of the scores; None for D^-0.5.
        dropout: The probability with which a weight is dropped.
        softcap: The c in c tanh(score / c), as in Gemma 2; None for unchanged scores.
        s_aux: The logits of attention sinks, [H], as in gpt-oss: additional keys for the softmax, without a value.
    """
    group = query.shape[1] // key.shape[1]  # number of query heads that share a key
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    length = query.shape[2]
    visible = _band(length, length, query.device) if mask is None else mask
    scores = scores.masked_fill(~visible, -torch.inf)
    if s_aux is not None:  # a column for the sinks, which is removed after the softmax
        sinks = s_aux.to(scores.dtype).view(1, -1, 1, 1).expand(len(scores), -1, length, 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = scores.softmax(-1)[..., :length]
    return (nn.functional.dropout(weights, dropout) @ value).transpose(1, 2), None


def _band(length: int, window: int, device: torch.device) -> Tensor:
    """Return a mask, bool [T, T], by which a query sees the key at its position and the `window` - 1 keys before."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril().triu(1 - window)


def _join_rows(states_BHTD: Tensor) -> Tensor:
    """Return the states of all rows as one sequence [N, H, D], the form for kernels for variable lengths."""
    return states_BHTD.transpose(1, 2).flatten(0, 1)


def _library_attention(implementation: str) -> Attention:
    """Return the attention function that transformers has registered under this name."""
    from transformers import AttentionInterface

    function: Attention = AttentionInterface()[implementation]
    return function


def _dense_attention(options: dict[str, object]) -> Attention:
    """Return an attention function for any device: `sdpa`, or `attend_plainly` if `sdpa` lacks one of the options."""
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        return attend_plainly
    return _library_attention(SDPA)


def _renamed(module: nn.Module, implementation: str) -> object:
    """Return the layer with `implementation` in its configuration, where transformers finds the name of the kernel."""
    return _Overlay(module, config=_Overlay(module.config, _attn_implementation=implementation))


def _mask(implementation: str, **options: Any) -> object:
    """Return the mask that `attend_documents` needs for a batch without documents."""
    from transformers import AttentionMaskInterface

    on_cpu = torch.device(options.get("device", "cpu")).type == "cpu"
    return AttentionMaskInterface()[SDPA if on_cpu else implementation](**options)


class _Overlay:
    """A view of an object in which some attributes are replaced."""

    def __init__(self, target: object, **values: object) -> None:
        self._target = target
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)


def isolate_documents(name: str, model: Causal, note: Callable[[str], object]) -> None:
    """Set the attention of a model to `attend_documents`, if the logits are then the same as with masks.

    1. Run packed rows with masks. Compare the mask of every layer with the window that the layer passes to its
       attention function. If these differ, the layer needs its mask.
    2. Run the same rows with `attend_documents`, without masks; the logits must equal the logits with masks.
    3. If a comparison fails, keep the attention of transformers, which allocates masks [T, T], and call `note`. With
       FlashAttention, which has no such masks, raise instead.

    An implementation other than `sdpa`, `flex_attention` and FlashAttention is kept, and `note` is called.

    On the CPU, no CUDA kernel runs: the steps then verify only the arguments that the model passes to its attention.

    Args:
        name: The name of the model in messages.
        model: A `Causal`. Its configuration, `model.model.config._attn_implementation`, names the implementation.
        note: A function that is called with a line if masks are kept.

    Raises:
        SettingError: If a document sees the document before it, or FlashAttention cannot separate documents.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    # Register two attention functions: PROBE runs with masks and compares windows; `chosen` is `attend_documents`.
    transformer = model.model
    implementation = transformer.config._attn_implementation
    if implementation in (SDPA, FLEX) or FLASH in implementation:
        matches: list[bool] = []  # for every call with a mask: whether the layer passes the window of the mask
        chosen = f"{BY_DOCUMENT}_{implementation.replace(FLASH, 'varlen').replace('/', '_')}"
        AttentionInterface.register(PROBE, partial(_probe, matches))
        AttentionMaskInterface.register(PROBE, _marked_mask)
        AttentionInterface.register(chosen, partial(attend_documents, implementation=implementation))
        AttentionMaskInterface.register(chosen, partial(_mask, implementation))
        transformer.set_attn_implementation(PROBE)
        masked = check_isolation(name, model)
        if matches and all(matches):
            transformer.set_attn_implementation(chosen)
            with suppress(TypeError, ValueError, RuntimeError, IndexError):  # of a model that does not take documents
                if equal_logits(check_isolation(name, model), masked, ISOLATED):
                    return
        if FLASH in implementation:  # with it, transformers itself separates documents only in batches of one row
            raise SettingError(
                f"{name}: {implementation} cannot separate the documents of packed rows in "
                f"{type(transformer).__name__}; use another attention implementation or --documents pad"
            )
        transformer.set_attn_implementation(implementation)
    else:
        check_isolation(name, model)
    note(f"{name}: attention in packed rows forms a mask of length x length")


def takes_documents(transformer: nn.Module) -> bool:
    """Return whether `isolate_documents` has set the attention of a model to `attend_documents`."""
    config = getattr(transformer, "config", None)
    return (getattr(config, "_attn_implementation", None) or "").startswith(BY_DOCUMENT)


def leave_uncompiled(transformer: PreTrainedModel) -> None:
    """Exclude `attend_documents` of a model from `torch.compile`.

    The lengths of documents are Python numbers, so PyTorch would compile the function again for every batch.
    """
    from transformers import AttentionInterface

    if takes_documents(transformer):
        name = transformer.config._attn_implementation
        attend = torch.compiler.disable(AttentionInterface()[name])
        AttentionInterface.register(name, attend)


def _probe(
    matches: list[bool],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: object,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention with a mask, and add to `matches` whether the layer passes the window of the mask.

    A layer that passes a `position_bias` does not match. A call without a mask adds nothing.
    """
    window, bias = options.pop("sliding_window", None), options.get("position_bias")
    if attention_mask is not None:
        is_equal = hasattr(attention_mask, "window") and attention_mask.window == window
        matches.append(bias is None and is_equal)
    return _dense_attention(options)(module, query, key, value, attention_mask, **options)


def _marked_mask(**options: object) -> object:
    """Return the mask of `sdpa`, with its window as an attribute if it is a plain causal or sliding mask."""
    from transformers.masking_utils import sdpa_mask

    mask = sdpa_mask(**options)
    if mask is not None and not options.get("use_vmap"):
        mask.window = options.get("local_size")
    return mask


@torch.no_grad()
def check_isolation(name: str, model: Causal) -> Tensor:
    """Return the logits [2, 8, V] of two packed rows with two documents each.

    In both rows, the logits of the second document must equal its logits in a batch of its own.

    Args:
        name: The name of the model in messages.
        model: A `Causal`.

    Raises:
        SettingError: The logits differ, because a document sees the document before it.
    """
    device = next(model.parameters(), torch.empty(0)).device
    tokens = torch.arange(16, device=device).view(2, 8) % model.vocab_size
    segments = torch.tensor([[1] * 4 + [2] * 4, [1] * 3 + [2] * 5], device=device)
    was_training = model.training
    model.eval()
    packed: Tensor = model(tokens, segments).logits
    alone: list[Tensor] = [model(tokens[:1, 4:]).logits, model(tokens[1:, 3:]).logits]
    model.train(was_training)
    is_isolated = equal_logits(packed[:1, 4:], alone[0], ISOLATED) and equal_logits(packed[1:, 3:], alone[1], ISOLATED)
    if not is_isolated:
        raise SettingError(
            f"{name}: the documents of a packed row see each other in {type(model.model).__name__}; use --documents pad"
        )
    return packed


def equal_logits(actual: Tensor, expected: Tensor, at_most: float) -> bool:
    """Return whether all differences are at most `at_most` times the largest expected logit, or are due to rounding."""
    rounding = 8 * torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0.0
    atol = max(at_most, rounding) * float(expected.abs().max())
    return bool(torch.isclose(actual.to(expected), expected, rtol=0.0, atol=atol, equal_nan=True).all())
