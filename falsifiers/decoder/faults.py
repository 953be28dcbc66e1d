"""Faults of decoders and of the providers around them, as wrong versions of public functions."""

from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional


def gate_and_up_swapped(original: Any, decoder: Any, *args: Any, **named: Any) -> Any:
    weights = [weight for name, weight in decoder.named_parameters() if name.endswith("gate_up.weight")]

    def swap() -> None:
        for weight in weights:
            weight.data = weight.data.roll(len(weight) // 2, 0)

    swap()
    try:
        return original(decoder, *args, **named)
    finally:
        swap()


def positions_in_half_precision(original: Any, *args: Any, **named: Any) -> Any:
    cosine, sine = Tensor.cos, Tensor.sin
    rounded = {"cos": lambda x: cosine(x).bfloat16().to(x.dtype), "sin": lambda x: sine(x).bfloat16().to(x.dtype)}
    with mock.patch.multiple(Tensor, **rounded):
        return original(*args, **named)


def positions_in_the_models_dtype(original: Any, decoder: Any, *args: Any, **named: Any) -> Any:
    arange = torch.arange

    def narrow(*numbers: int, **options: Any) -> Tensor:
        return arange(*numbers, **{**options, "dtype": decoder.embedding.weight.dtype})

    with mock.patch.object(torch, "arange", narrow):
        return original(decoder, *args, **named)


def padding_seen_by_all(original: Any, decoder: Any, tokens: Tensor, segments: Any = None, *args: Any) -> Any:
    attention = functional.scaled_dot_product_attention

    def seeing(*tensors: Tensor, attn_mask: Any, **options: Any) -> Tensor:
        if segments is not None:
            earlier = torch.ones_like(attn_mask[0, 0]).tril()
            attn_mask = attn_mask | (segments == 0)[:, None, None, :] & earlier
        return attention(*tensors, attn_mask=attn_mask, **options)

    with mock.patch.object(functional, "scaled_dot_product_attention", seeing):
        return original(decoder, tokens, segments, *args)


def process_seeded(original: Any, config: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    return original(config, seed)


def states_before(original: Any, decoder: Any, tokens: Any, *args: Any, **named: Any) -> Any:
    output = original(decoder, tokens, *args, **named)
    states = getattr(output, "hidden_states", None)
    if states is None:
        return output
    return type(output)(output.logits, [decoder.embedding(tokens), *states[:-1]])
