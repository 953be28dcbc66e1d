"""Float64 oracle of the decoder, from its equations, in NumPy: the arithmetic uses no tensor operation of PyTorch.

    x = E[token];  for each layer:  x += O · concat_h softmax(q_h k_hᵀ / √D) v_h,  x += Down · (silu(g) ⊙ u)
    logits = Head · norm(x);  norm(x) = gain ⊙ x / √(mean x² + 2⁻²³);  q, k, v and g, u are projections of norm(x)
    q and k at position p: the pair of features (j, j + D/2) turned by the angle p · 10000^(-2j/D)

Sources: Vaswani et al. 2017, arXiv:1706.03762, equation 1; Zhang and Sennrich 2019, arXiv:1910.07467, equation 4; Su et
al. 2021, arXiv:2104.09864, equation 34; Shazeer 2020, arXiv:2002.05202, equation 6.
Shape letters: B batch, T position, W width, H head, D width of a head, V vocabulary.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[Any]
Weights = Mapping[str, Array]
Module = TypeVar("Module", bound=torch.nn.Module)

EPSILON = 2.0**-23
UNIT = {torch.float16: 2.0**-11, torch.float32: 2.0**-24, torch.float64: 2.0**-53}
"""Unit roundoff: the largest relative error of one rounding."""


def with_random_weights(module: Module, seed: int) -> Module:
    """Give a decoder weights about 1.5 / sqrt(width): attention is far from uniform, and no gain is 1."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(1.5 * values / parameter.shape[-1] ** 0.5 + (parameter.dim() == 1))
    return module


def weights_of(module: torch.nn.Module) -> dict[str, Array]:
    """Return the module's state by name, in float64."""
    return {name: np.array(value.detach().cpu().double().tolist()) for name, value in module.state_dict().items()}


def weights_in(directory: Path) -> dict[str, Array]:
    """Return the weights of an exported model by name, in float64."""
    return {name: value.astype(np.float64) for name, value in load_file(directory / "model.safetensors").items()}


def logits(
    weights: Weights, heads: int, tokens: Array, dtype: Any = np.float64, *, last: int | None = None, fillers: int = 0
) -> Array:
    """Return the logits [B, T, V] of integer tokens [B, T], computed in `dtype`.

    Args:
        weights: The weights by name.
        heads: The number of heads.
        tokens: Token ids [B, T].
        dtype: The dtype of the arithmetic.
        last: The number of last positions whose logits are returned; None for all.
        fillers: The number of additional tokens before the first token. Their embeddings are zero, so attention gives
            them the score 0 and the value 0 at any distance.
    """
    w = {name: value.astype(dtype) for name, value in weights.items()}
    x = w["embedding.weight"][tokens]
    layers = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("blocks."))
    for layer in range(layers):
        part = {name.removeprefix(f"blocks.{layer}."): value for name, value in w.items()}
        kept = x.shape[1] if last is None or layer < layers - 1 else last
        mixed = _attention(part, heads, _norm(x, part["attention_norm.weight"]), kept, fillers)
        x = x[:, -kept:] + mixed
        x = x + _feed_forward(part, _norm(x, part["feed_forward_norm.weight"]))
    out: Array = _norm(x, w["norm.weight"]) @ w["head.weight"].T
    return out


def _norm(x: Array, gain: Array) -> Array:
    mean_square = (x * x).mean(-1, keepdims=True) + x.dtype.type(EPSILON)
    normed: Array = gain * x / np.sqrt(mean_square)
    return normed


def _attention(w: Weights, heads: int, x: Array, last: int, fillers: int) -> Array:
    """Return the attention [B, last, W] of the last positions."""
    B, T, W = x.shape
    q, k, v = (
        part.reshape(B, T, heads, W // heads)
        for part in np.split(x @ w["attention.query_key_value.weight"].T, 3, axis=-1)
    )
    q, k, v = (heads_BTHD.swapaxes(1, 2) for heads_BTHD in (_turned(q)[:, -last:], _turned(k), v))  # [B, H, T, D]
    scores = q @ k.swapaxes(2, 3) / x.dtype.type(np.sqrt(W // heads))
    scores[..., np.triu(np.ones((last, T), dtype=bool), 1 + T - last)] = -np.inf
    highest = scores.max(-1, keepdims=True) if fillers == 0 else np.maximum(scores.max(-1, keepdims=True), 0)
    share = np.exp(scores - highest)
    share = share / (share.sum(-1, keepdims=True) + fillers * np.exp(-highest))
    mixed = (share @ v).swapaxes(1, 2).reshape(B, last, W)
    out: Array = mixed @ w["attention.out.weight"].T
    return out


def _turned(x: Array) -> Array:
    """Return x [B, T, H, D] with rotary positions: feature pairs as complex numbers, multiplied by e^(i · angle)."""
    T, D = x.shape[1], x.shape[3]
    angle = np.arange(T)[:, None, None] * 10000.0 ** (-2 * np.arange(D // 2) / D)
    kind = np.complex64 if x.dtype == np.float32 else np.complex128
    turned = (x[..., : D // 2] + 1j * x[..., D // 2 :]) * np.exp(1j * angle).astype(kind)
    return np.concatenate((turned.real, turned.imag), axis=-1)


def _feed_forward(w: Weights, x: Array) -> Array:
    gate, up = np.split(x @ w["feed_forward.gate_up.weight"].T, 2, axis=-1)
    out: Array = (gate / (1 + np.exp(-gate)) * up) @ w["feed_forward.down.weight"].T
    return out


def allowed(weights: Weights, heads: int, tokens: Array, dtype: torch.dtype, *, last: int | None = None) -> float:
    """Return the tolerance for logits computed in `dtype`: 32 times the measured float32 rounding of these equations.

    The rounding is the largest difference of all logits between NumPy's float32 and float64, scaled to the unit
    roundoff of `dtype`. The factor 32 allows for another order of summation, fused kernels and a small sample; a wrong
    term differs by thousands of roundings.
    """
    exact = logits(weights, heads, tokens, last=last)
    single = logits(weights, heads, tokens, np.float32, last=last)
    spread = np.abs(single - exact).max() + np.abs(exact).max() * 2.0**-24
    return float(32 * spread * UNIT[dtype] / UNIT[torch.float32])


def chunks(tokens: Array, rows: int = 64) -> Iterator[Array]:
    """Yield consecutive slices of at most `rows` rows."""
    for start in range(0, len(tokens), rows):
        yield tokens[start : start + rows]


def log_softmax(x: Array) -> Array:
    """Return the log-probabilities over the last axis."""
    shifted = x - x.max(-1, keepdims=True)
    out: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return out


def losses(student: Array, teacher: Array, tokens: Array, temperature: float = 1.0) -> tuple[float, float]:
    """Return cross-entropy and KL(teacher || student) in nats, summed over positions with a next token."""
    targets = tokens[:, 1:, None]
    log_q, log_p = (log_softmax(x[:, :-1] / temperature) for x in (student, teacher))
    hard = -np.take_along_axis(log_softmax(student[:, :-1]), targets, -1).sum()
    return float(hard), float((np.exp(log_p) * (log_p - log_q)).sum())
