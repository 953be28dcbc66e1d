"""Attacks on the decoder and on the providers around it.

The subject has `Decoder`, `DecoderConfig` and `new_decoder`, as `models.decoder` does; that of the providers
has `ModuleStudent`, `ModuleTeacher` and `Sequences` too, as `reference_trainer.pipeline.distill` does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import decoder_oracle as oracle

DTYPES = st.sampled_from([torch.float32, torch.float64])


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

    def decoder(self, subject: Any, dtype: torch.dtype = torch.float32, device: str = "cpu") -> nn.Module:
        """Weights about 1 / sqrt(width), so that attention is far from uniform and no gain is 1."""
        module: nn.Module = subject.Decoder(self.config(subject)).to(dtype)
        generator = torch.Generator().manual_seed(self.seed)
        for parameter in module.parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.data.copy_(1.5 * values / parameter.shape[-1] ** 0.5 + (parameter.dim() == 1))
        return module.to(device)


@st.composite
def decoder_cases(draw: st.DrawFn, fewest_tokens: int = 1) -> DecoderCase:
    heads, pairs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    vocabulary, layers, seed = draw(st.integers(2, 9)), draw(st.integers(1, 2)), draw(st.integers(0, 2**20))
    B, T = draw(st.integers(1, 2)), draw(st.integers(fewest_tokens, 7))
    tokens = draw(st.lists(st.integers(0, vocabulary - 1), min_size=B * T, max_size=B * T))
    return DecoderCase(vocabulary, layers, heads, 2 * heads * pairs, seed, torch.tensor(tokens).reshape(B, T))


def assert_is_the_oracles(what: str, seen: Tensor, module: nn.Module, case: DecoderCase) -> None:
    weights, tokens = oracle.weights_of(module), case.tokens.numpy()
    expected = torch.from_numpy(oracle.logits(weights, case.heads, tokens))
    allowed = oracle.allowed(weights, case.heads, tokens, seen.dtype)
    assert seen.shape == expected.shape, f"{what} have the shape {list(seen.shape)}, expected {list(expected.shape)}"
    apart = (seen.detach().cpu().double() - expected).abs()
    worst = int(apart.nan_to_num(torch.inf).argmax())
    where = [int(i) for i in torch.unravel_index(torch.tensor(worst), seen.shape)]
    assert bool((apart <= allowed).all()), (
        f"{what}, computed in {seen.dtype} on {seen.device}, are apart from the equations in float64 by "
        f"{float(apart.flatten()[worst]):.3g}, allowed {allowed:.3g}: {float(seen.flatten()[worst]):.6g}, expected "
        f"{float(expected.flatten()[worst]):.6g} at [b, t, v] {where}"
    )


@given(case=decoder_cases(), dtype=DTYPES)
def falsify_logits_follow_equations(subject: Any, device: str, case: DecoderCase, dtype: torch.dtype) -> None:
    module = case.decoder(subject, dtype, device)
    with torch.no_grad():
        seen = module(case.tokens.to(device))
    assert seen.dtype is dtype, f"weights in {dtype} give logits in {seen.dtype}"
    assert_is_the_oracles("logits", seen, module, case)


@given(case=decoder_cases(fewest_tokens=2), data=st.data())
def falsify_attention_is_causal(subject: Any, device: str, case: DecoderCase, data: st.DataObject) -> None:
    """Logits up to i keep every bit when later tokens change: those have the weight 0, and adding 0 rounds nothing.

    Without the later tokens kernels may sum in another order, so there they keep what rounding leaves.
    """
    i = data.draw(st.integers(0, case.tokens.shape[1] - 2), label="i")
    module = case.decoder(subject, device=device)
    other = case.tokens.clone()
    other[:, i + 1 :] = (other[:, i + 1 :] + 1) % case.vocab_size
    with torch.no_grad():
        here, there, alone = (module(t.to(device))[:, : i + 1] for t in (case.tokens, other, case.tokens[:, : i + 1]))
    assert torch.equal(here, there), (
        f"other tokens after position {i} change logits up to it by {float((here - there).abs().max()):.3g}"
    )
    allowed = oracle.allowed(oracle.weights_of(module), case.heads, case.tokens.numpy(), torch.float32)
    apart = float((here - alone).abs().max())
    assert apart <= allowed, (
        f"without the tokens after position {i} logits differ by {apart:.3g}, allowed {allowed:.3g}"
    )


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


WHERE: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "without changes": nullcontext,
    "without gradients": torch.no_grad,
    "default dtype float64": lambda: _default_dtype(torch.float64),
    "default dtype bfloat16": lambda: _default_dtype(torch.bfloat16),
    "default device meta": lambda: torch.device("meta"),
}


@given(case=decoder_cases(), where=st.sampled_from(list(WHERE)), drawn=st.integers(0, 5))
def falsify_weights_depend_only_on_config_and_seed(subject: Any, case: DecoderCase, where: str, drawn: int) -> None:
    """Independent of earlier random draws and torch's defaults; another seed gives others; all require a gradient.

    No generator of the process moves, those of CUDA devices included.
    """
    make = subject.new_decoder
    first = make(case.config(subject), case.seed)
    torch.rand(drawn)
    before = torch.get_rng_state()
    with mock.patch.object(torch.cuda, "manual_seed_all") as seeded, WHERE[where]():
        second = make(case.config(subject), case.seed)
    assert torch.equal(before, torch.get_rng_state()), "making a model moved the process's random numbers"
    assert not seeded.called, f"making a model seeded the generators of all CUDA devices with {seeded.call_args.args}"
    for name, value in first.state_dict().items():
        other = second.state_dict()[name]
        same = other.dtype is value.dtype and other.device == value.device and torch.equal(value, other)
        assert same, (
            f"{name} differs, {where}, after {drawn} random numbers: {value.flatten()[:3]}, {other.flatten()[:3]}"
        )
    frozen = [name for name, parameter in second.named_parameters() if not parameter.requires_grad]
    assert not frozen, f"{frozen} do not require a gradient"
    unlike = make(case.config(subject), case.seed + 1).embedding.weight
    assert not torch.equal(first.embedding.weight, unlike), f"seeds {case.seed} and {case.seed + 1} give equal weights"


@given(case=decoder_cases(fewest_tokens=2))
def falsify_providers_return_decoder_logits(subject: Any, device: str, case: DecoderCase) -> None:
    """Teacher and student around a decoder give its own logits within 1e-6, and those of the equations in float64."""
    module = case.decoder(subject, device=device)
    T = case.tokens.shape[1]
    text = torch.cat((case.tokens[0], *case.tokens[1:, 1:])).to(torch.uint8)
    sequences = subject.Sequences(bytes_N=text, length=T, batch_size=9, device=torch.device(device))
    batch = sequences.batch(torch.arange(len(sequences)), 1)
    with torch.no_grad():
        alone = copy.deepcopy(module)(batch.tokens)
    student = subject.ModuleStudent(copy.deepcopy(module), case.vocab_size).forward(batch).logits
    teacher = subject.ModuleTeacher(copy.deepcopy(module), case.vocab_size).logits(batch)
    case = DecoderCase(case.vocab_size, case.layers, case.heads, case.width, case.seed, batch.tokens.cpu())
    for what, seen in (("the student's logits", student), ("the teacher's logits", teacher)):
        assert seen.dtype is torch.float32, f"{what} are {seen.dtype}, the weights float32"
        apart = float((seen - alone).abs().max())
        assert apart <= 1e-6, f"{what} on {seen.device} are apart from a forward of the decoder alone by {apart:.3g}"
        assert_is_the_oracles(what, seen, module, case)


REFUSED = [
    {"layers": 0},
    {"heads": 2},
    {"width": 12},
    {"width": -8},
    {"vocab_size": 0},
    {"heads": True},
    {"width": 8.0},
]


@given(changed=st.sampled_from(REFUSED))
def falsify_shapes_without_pairs_are_rejected(subject: Any, changed: dict[str, Any]) -> None:
    """Indivisible widths, and values that are not positive integers: a ValueError that names the field."""
    shape = {"vocab_size": 5, "layers": 1, "width": 6, "heads": 1, **changed}
    if shape["width"] == 12:
        shape["heads"] = 4
    try:
        accepted = subject.DecoderConfig(**shape)
    except ValueError as refusal:
        assert "width" in str(refusal) or next(iter(changed)) in str(refusal), f"{changed}: rejected with {refusal}"
        return
    raise AssertionError(f"{shape} is accepted: {accepted}")
