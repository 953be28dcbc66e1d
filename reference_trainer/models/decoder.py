"""A small decoder-only transformer: RMSNorm, rotary positions, causal attention, SwiGLU.

Sources: RMSNorm, Zhang and Sennrich 2019, arXiv:1910.07467, equation 4; rotary positions, Su et al. 2021,
arXiv:2104.09864, equation 34; SwiGLU, Shazeer 2020, arXiv:2002.05202, equation 6.
Shape letters: B batch, T position, W width, H head, D width of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from reference_trainer.errors import SettingError

# The default of PyTorch depends on the dtype: the same weights would compute another function in another dtype.
_EPSILON = 2.0**-23


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The shape of a model. Raise `SettingError` unless all are positive integers and 2 * `heads` divides `width`."""

    vocab_size: int
    layers: int
    width: int
    heads: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is not int or value < 1:
                raise SettingError(f"invalid value {value!r} for {name!r}: expected a positive integer")
        if self.width % (2 * self.heads):
            raise SettingError(
                f"invalid value {self.width} for 'width' with {self.heads} heads: expected a multiple of "
                f"{2 * self.heads}, because rotary positions rotate pairs of features"
            )


class DecoderOutput(NamedTuple):
    """Logits [B, T, V], and the state [B, T, W] after each block."""

    logits: Tensor
    hidden_states: list[Tensor]


class Decoder(nn.Module):
    """A causal language model: int64 tokens [B, T] to logits [B, T, V] in the dtype of the weights.

    logits[b, i] depends only on tokens[b, :i + 1]. With `segments`, integers [B, T], logits[b, i] depends only on those
    tokens of tokens[b, :i + 1] that are in the segment of token i, and positions count from the start of a segment. So
    the logits of a document do not depend on the other documents of its row. With `output_hidden_states`, the result is
    a `DecoderOutput`.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=_EPSILON)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        # Every block adds the outputs of two matrices to the residual stream. A smaller standard deviation of these
        # 2 * layers matrices keeps the variance of the sum independent of the number of layers (Radford et al. 2019,
        # GPT-2).
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * config.layers) ** 0.5 if into_residual else 0.02)

    def get_output_embeddings(self) -> nn.Linear:
        """Return the output layer. Models of transformers have a method of the same name."""
        return self.head

    def forward(
        self, tokens_BT: Tensor, segments: Tensor | None = None, output_hidden_states: bool = False
    ) -> Tensor | DecoderOutput:
        x_BTW = self.embedding(tokens_BT)
        # Without segments, the position of a token is its index. With segments, the position is the number of earlier
        # tokens that the token attends to.
        rotation = _rotation(tokens_BT.shape[1], self.config.width // self.config.heads, x_BTW)
        mask = None
        if segments is not None:
            mask = _attention_mask(segments)
            position_B1T = mask.sum(-1) - 1
            rotation = rotation[0][position_B1T], rotation[1][position_B1T]
        states = []
        for block in self.blocks:
            x_BTW = block(x_BTW, rotation, mask)
            if output_hidden_states:
                states.append(x_BTW)
        logits_BTV: Tensor = self.head(self.norm(x_BTW))
        return DecoderOutput(logits_BTV, states) if output_hidden_states else logits_BTV


class _Block(nn.Module):
    """Attention, then a feed-forward layer; each reads normalised states and adds to the residual stream."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=_EPSILON)
        self.attention = _Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=_EPSILON)
        self.feed_forward = _FeedForward(config.width)

    def forward(self, x_BTW: Tensor, rotation: tuple[Tensor, Tensor], mask_B1TT: Tensor | None) -> Tensor:
        x_BTW = x_BTW + self.attention(self.attention_norm(x_BTW), rotation, mask_B1TT)
        out_BTW: Tensor = self.feed_forward(self.feed_forward_norm(x_BTW))
        return x_BTW + out_BTW


class _Attention(nn.Module):
    """Causal attention of several heads, with rotary positions."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query_key_value = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x_BTW: Tensor, rotation: tuple[Tensor, Tensor], mask_B1TT: Tensor | None) -> Tensor:
        query_BHTD, key_BHTD, value_BHTD = (
            part.reshape(*part.shape[:2], self.heads, part.shape[2] // self.heads).permute(0, 2, 1, 3)
            for part in self.query_key_value(x_BTW).chunk(3, dim=-1)
        )
        mixed_BHTD = nn.functional.scaled_dot_product_attention(
            _rotate(query_BHTD, rotation),
            _rotate(key_BHTD, rotation),
            value_BHTD,
            attn_mask=mask_B1TT,
            is_causal=mask_B1TT is None,  # with this flag, kernels skip the masked positions
        )
        out_BTW: Tensor = self.out(mixed_BHTD.permute(0, 2, 1, 3).flatten(2))
        return out_BTW


class _FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = 8 * width // 3  # 2/3 of the usual 4 * width, because there are three matrices instead of two
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x_BTW: Tensor) -> Tensor:
        gate, up = self.gate_up(x_BTW).chunk(2, dim=-1)
        out_BTW: Tensor = self.down(nn.functional.silu(gate) * up)
        return out_BTW


def _rotation(length: int, head_width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine and the sine of position * frequency, [T, D] each; features i and i + D / 2 share a frequency.

    The results have the dtype and the device of `like`.
    """
    # Angles need float64: in float32 their error grows with the position, and bfloat16 has no odd number above 256.
    exponent = torch.arange(0, head_width, 2, device=like.device, dtype=torch.float64) / head_width
    angle = torch.arange(length, device=like.device, dtype=torch.float64)[:, None] * 10000.0**-exponent
    both = torch.cat((angle, angle), dim=-1)
    return both.cos().to(like.dtype), both.sin().to(like.dtype)


def _attention_mask(segments_BT: Tensor) -> Tensor:
    """Return a mask, bool [B, 1, T, T]: a position attends to itself and to earlier positions of its segment."""
    # Padding attends to padding, because a softmax over no position is NaN.
    same_BTT = segments_BT[:, :, None] == segments_BT[:, None, :]
    return same_BTT.tril()[:, None]


def _rotate(x_BHTD: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Return x, rotated by the angles whose cosine and sine are in `rotation`.

    Cosine and sine are [T, D], or [B, 1, T, D] if positions differ between rows.
    """
    cosine, sine = rotation
    first, second = x_BHTD.chunk(2, dim=-1)
    rotated: Tensor = (x_BHTD * cosine + torch.cat((-second, first), dim=-1) * sine).to(x_BHTD.dtype)
    return rotated


def new_decoder(config: DecoderConfig, seed: int) -> Decoder:
    """Return a float32 model with random weights that depend on `config` and `seed` only.

    The global random generators are not changed.
    """
    with torch.device("cpu"), _default_dtype(torch.float32), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the generators of the GPUs
        return Decoder(config)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Within the context, make this dtype the default of new floating-point tensors."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
