"""Decoders with random weights, tokens for them, and their comparison with the float64 oracle."""

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import decoder_oracle as oracle


@dataclass(frozen=True, slots=True, eq=False)
class DecoderCase:
    """A decoder with random weights and gains, and tokens [B, T] for it."""

    vocab_size: int
    layers: int
    heads: int
    width: int
    seed: int
    tokens: Tensor

    def config(self, subject: Any) -> Any:
        return subject.DecoderConfig(vocab_size=self.vocab_size, layers=self.layers, width=self.width, heads=self.heads)

    def decoder(self, subject: Any, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return oracle.with_random_weights(subject.Decoder(self.config(subject)).to(dtype), self.seed).to(device)


@st.composite
def decoder_cases(draw: st.DrawFn, fewest_tokens: int = 1) -> DecoderCase:
    heads, pairs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    vocabulary, layers, seed = draw(st.integers(2, 9)), draw(st.integers(1, 2)), draw(st.integers(0, 2**20))
    B, T = draw(st.integers(1, 2)), draw(st.integers(fewest_tokens, 7))
    tokens = draw(st.lists(st.integers(0, vocabulary - 1), min_size=B * T, max_size=B * T))
    return DecoderCase(vocabulary, layers, heads, 2 * heads * pairs, seed, torch.tensor(tokens).reshape(B, T))


def assert_close(what: str, seen: Tensor, expected: Any, allowed: float) -> None:
    """Assert that logits [B, T, V] differ by at most `allowed` from the oracle's."""
    expected = torch.from_numpy(expected)
    assert seen.shape == expected.shape, f"{what} have the shape {list(seen.shape)}, expected {list(expected.shape)}"
    apart = (seen.detach().cpu().double() - expected).abs()
    worst = int(apart.nan_to_num(torch.inf).argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(worst), seen.shape)]
    assert bool((apart <= allowed).all()), (
        f"{what}, computed in {seen.dtype} on {seen.device}, differ from the equations in float64 by "
        f"{float(apart.flatten()[worst]):.3g}, allowed {allowed:.3g}: {float(seen.flatten()[worst]):.6g}, expected "
        f"{float(expected.flatten()[worst]):.6g} at [b, t, v] {place}"
    )


def assert_follows_equations(what: str, seen: Tensor, module: nn.Module, heads: int, tokens: Tensor) -> None:
    """Assert that logits are those of the oracle with the module's weights, up to rounding in their dtype."""
    weights, ids = oracle.weights_of(module), tokens.cpu().numpy()
    assert_close(what, seen, oracle.logits(weights, heads, ids), oracle.allowed(weights, heads, ids, seen.dtype))
