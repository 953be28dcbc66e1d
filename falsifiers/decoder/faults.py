"""Faults of decoders and of the providers around them, as wrong versions of public functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

EPSILON = 2.0**-23


def _turns(length: int, width: int, device: Any, table: Any = torch.float64) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [T, D] of all positions in float64, from positions and frequencies in `table`."""
    exponent = torch.arange(0, width, 2, device=device, dtype=table) / width
    angle = torch.arange(length, device=device, dtype=table)[:, None] * 10000.0**-exponent
    both = torch.cat((angle, angle), dim=-1).double()
    return both.cos(), both.sin()


def _turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    turned: Tensor = x * turns[0] + torch.cat((-second, first), dim=-1) * turns[1]
    return turned


def _norm(x: Tensor, gain: Tensor) -> Tensor:
    return functional.rms_norm(x, gain.shape, gain, EPSILON)


def _attention(x: Tensor, part: dict[str, Tensor], heads: int, turns: Any, mask: Any) -> Tensor:
    projected = functional.linear(x, part["attention.query_key_value.weight"]).chunk(3, dim=-1)
    query, key, value = (each.reshape(*each.shape[:2], heads, -1).transpose(1, 2) for each in projected)
    query, key = _turned(query, turns), _turned(key, turns)
    mixed = functional.scaled_dot_product_attention(
        query.to(x.dtype), key.to(x.dtype), value.to(x.dtype), is_causal=mask is None, attn_mask=mask
    )
    return functional.linear(mixed.transpose(1, 2).flatten(2), part["attention.out.weight"])


def _output(
    decoder: Any,
    tokens: Any,
    segments: Any = None,
    output_hidden_states: bool = False,
    *,
    turns: Any = None,
    mask: Any = None,
    up_first: bool = False,
) -> Any:
    """Compute the decoder's equations from its named parameters, with the selected faults.

    turns: of the positions of a row, and mask: what is attended to, where they are not those of the decoder.
    """
    from reference_trainer.models.decoder import DecoderOutput

    turns = _placed(turns or _of(decoder, tokens), _seen(segments))
    mask = _seen(segments) if mask is None else mask
    states = list[Tensor]()
    w = dict(decoder.named_parameters())
    x: Tensor = w["embedding.weight"][tokens]
    for layer in range(decoder.config.layers):
        part = {name.removeprefix(f"blocks.{layer}."): value for name, value in w.items()}
        normed = _norm(x, part["attention_norm.weight"])
        x = x + _attention(normed, part, decoder.config.heads, turns, mask)
        normed = _norm(x, part["feed_forward_norm.weight"])
        gate, up = functional.linear(normed, part["feed_forward.gate_up.weight"]).chunk(2, dim=-1)
        gate, up = (up, gate) if up_first else (gate, up)
        x = x + functional.linear(functional.silu(gate) * up, part["feed_forward.down.weight"])
        states.append(x)
    logits = functional.linear(_norm(x, w["norm.weight"]), w["head.weight"])
    return DecoderOutput(logits, states) if output_hidden_states else logits


def _of(decoder: Any, tokens: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the turns for these tokens in the dtype of the weights."""
    like = decoder.embedding.weight
    cosine, sine = _turns(tokens.shape[1], decoder.config.width // decoder.config.heads, like.device, **options)
    return cosine.to(like.dtype), sine.to(like.dtype)


def _seen(segments: Any) -> Any:
    """Return which positions attend to which, bool [B, 1, T, T], or None without segments."""
    if segments is None:
        return None
    same = segments[:, :, None] == segments[:, None, :]
    return same.tril()[:, None]


def _placed(turns: tuple[Tensor, Tensor], mask: Any) -> tuple[Tensor, Tensor]:
    """Return the turns of the positions within segments."""
    return turns if mask is None else (turns[0][mask.sum(-1) - 1], turns[1][mask.sum(-1) - 1])


def gate_and_up_swapped(decoder: Any, tokens: Any, *given: Any, **named: Any) -> Any:
    return _output(decoder, tokens, *given, **named, up_first=True)


def positions_in_half_precision(decoder: Any, tokens: Any, *given: Any, **named: Any) -> Any:
    cosine, sine = (each.bfloat16().to(each.dtype) for each in _of(decoder, tokens))
    return _output(decoder, tokens, *given, **named, turns=(cosine, sine))


def positions_in_the_models_dtype(decoder: Any, tokens: Any, *given: Any, **named: Any) -> Any:
    turns = _of(decoder, tokens, table=decoder.embedding.weight.dtype)
    return _output(decoder, tokens, *given, **named, turns=turns)


def padding_seen_by_all(decoder: Any, tokens: Any, segments: Any = None, output_hidden_states: bool = False) -> Any:
    mask = _seen(segments)
    if mask is not None:
        T = tokens.shape[1]
        earlier = torch.ones(T, T, dtype=torch.bool, device=tokens.device).tril()
        mask = mask | (segments == 0)[:, None, None, :] & earlier
    return _output(decoder, tokens, segments, output_hidden_states, mask=mask)


def process_seeded(original: Any, config: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    return original(config, seed)


def states_before(original: Any, decoder: Any, tokens: Any, *given: Any, **named: Any) -> Any:
    output = original(decoder, tokens, *given, **named)
    states = getattr(output, "hidden_states", None)
    if states is None:
        return output
    return type(output)(output.logits, [decoder.embedding(tokens), *states[:-1]])
