"""Attacks on the rotary positions of a decoder. The subject is `reference_trainer.models.decoder`, or has its names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.decoder.cases import DecoderCase, assert_close, decoder_cases
from falsifiers.support import decoder_oracle as oracle

READ = 8
"""Number of last positions whose logits are compared, since the oracle needs memory for each score."""


@given(case=decoder_cases(), shift=st.integers(1, 40))
def falsify_attention_depends_on_distances_only(subject: Any, device: str, case: DecoderCase, shift: int) -> None:
    """Logits of a text after `shift` tokens of zero embedding are those of the text at position 0.

    Such a token has the query, key and value 0 in every layer. It adds exp(0) to the divisor of each softmax, at any
    distance, which the oracle adds too; all other scores depend on the distances within the text.
    """
    case = DecoderCase(case.vocab_size + 1, case.layers, case.heads, case.width, case.seed, case.tokens)
    module = case.decoder(subject, torch.float64, device)
    with torch.no_grad():
        module.embedding.weight[-1] = 0
        fillers = torch.full((len(case.tokens), shift), case.vocab_size - 1)
        seen = module(torch.cat((fillers, case.tokens), dim=1).to(device))[:, shift:]
    weights, tokens = oracle.weights_of(module), case.tokens.numpy()
    expected = oracle.logits(weights, case.heads, tokens, fillers=shift)
    # An angle of p radians is rounded by up to p units.
    allowed = (1 + shift) * oracle.allowed(weights, case.heads, tokens, torch.float64)
    assert_close(f"logits {shift} positions later", seen, expected, allowed)


@given(
    dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]),
    length=st.integers(1000, 4000),
    pairs=st.integers(1, 4),
    seed=st.integers(0, 2**20),
)
@example(dtype=torch.float16, length=2500, pairs=2, seed=0)
@example(dtype=torch.float16, length=2500, pairs=4, seed=1)
@example(dtype=torch.float16, length=2500, pairs=2, seed=4)
def falsify_distant_positions_follow_equations(
    subject: Any, device: str, dtype: torch.dtype, length: int, pairs: int, seed: int
) -> None:
    """Logits of the last positions of a long text are those of the equations in float64.

    Positions as such cannot be held in every dtype (float16 has no odd number above 2048), and the angle of position p
    in float32 is wrong by up to p roundings. Most float16 weights hide both; those of the examples do not.
    """
    tokens = torch.from_numpy(np.random.default_rng(seed).integers(0, 50, (1, length)))
    case = DecoderCase(50, 1, 1, 2 * pairs, seed, tokens)
    module = case.decoder(subject, dtype, device)
    with torch.no_grad():
        seen = module(tokens.to(device))[:, -READ:]
    weights, ids = oracle.weights_of(module), tokens.numpy()
    allowed = oracle.allowed(weights, 1, ids, dtype, last=READ)
    assert_close(f"logits at the end of {length} tokens", seen, oracle.logits(weights, 1, ids, last=READ), allowed)
