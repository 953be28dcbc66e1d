"""Attacks on the rotary positions of a decoder. The subject is `reference_trainer.models.decoder`, or has its names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_run.falsify_decoder import DecoderCase, decoder_cases

UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def _attention_inputs(module: Any, tokens: torch.Tensor) -> tuple[Any, ...]:
    """Return what the first layer's attention is called with: its input, and cosine and sine of the angles [T, D]."""
    inputs: list[tuple[Any, ...]] = []
    hook = module.blocks[0].attention.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments))
    try:
        with torch.no_grad():
            module(tokens)
    finally:
        hook.remove()
    return inputs[0]


@given(case=decoder_cases(), shift=st.integers(1, 40))
def falsify_attention_depends_on_distances_only(subject: Any, case: DecoderCase, shift: int) -> None:
    """Attention at positions p + shift equals attention at p, because the rotations of query and key cancel.

    The module's own angles of a longer text are used, so this does not depend on how they are stored.
    """
    module: Any = case.decoder(subject, torch.float64)
    T = case.tokens.shape[1]
    x, turns = _attention_inputs(module, case.tokens.repeat(1, 1 + -(-shift // T)))
    with torch.no_grad():
        here, there = (module.blocks[0].attention(x[:, :T], tuple(t[s : s + T] for t in turns)) for s in (0, shift))
    # Angles up to 47 rad are good to 47 * 2^-53, as are cosine, sine and what they multiply; values are about 1.
    allowed, apart = 1e-12 * max(1.0, float(here.abs().max())), float((here - there).abs().max())
    assert apart <= allowed, f"shifted by {shift} positions, attention differs by {apart:.3g}, allowed {allowed:.3g}"


@given(
    dtype=st.sampled_from(list(UNIT_ROUNDOFF)),
    length=st.integers(2, 300) | st.integers(1000, 5000),
    pairs=st.integers(1, 8),
)
def falsify_angles_are_exact_at_every_position(
    subject: Any, device: str, dtype: torch.dtype, length: int, pairs: int
) -> None:
    """Cosine and sine of each position are those of float64, rounded once to the dtype of the weights.

    Positions as such cannot be held in every dtype: bfloat16 has no odd number above 256, float16 none above 2048, and
    the angle of position p in float32 is wrong by up to p roundings.
    """
    config = subject.DecoderConfig(vocab_size=2, layers=1, width=2 * pairs, heads=1)
    module = subject.Decoder(config).to(dtype).to(device)
    _, turns = _attention_inputs(module, torch.zeros(1, length, dtype=torch.int64, device=device))
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)
    # One rounding of a value of at most 1; in float64 the angle itself has that of its product and of its frequency.
    allowed = UNIT_ROUNDOFF[dtype] + 4 * UNIT_ROUNDOFF[torch.float64] * length
    for name, seen, expected in zip(("cosine", "sine"), turns, (np.cos(angles), np.sin(angles)), strict=True):
        assert seen.shape == (length, 2 * pairs), f"{name} has the shape {list(seen.shape)}"
        apart = np.abs(seen.double().cpu().numpy() - np.tile(expected, 2))
        worst = np.unravel_index(int(apart.argmax()), apart.shape)
        assert apart[worst] <= allowed, (
            f"with weights in {dtype}, the {name} at position {worst[0]}, feature {worst[1]} differs from that of the "
            f"exact angle by {apart[worst]:.3g}; allowed {allowed:.3g}"
        )
