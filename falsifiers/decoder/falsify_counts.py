"""Attacks on the number of operations of a step. The subject has `step_flops` as `training.flops` does."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from reference_trainer.models.decoder import Decoder, DecoderConfig

SIZES = st.integers(1, 4)


@st.composite
def configs(draw: st.DrawFn, vocab_size: int) -> DecoderConfig:
    heads = draw(st.integers(1, 3))
    return DecoderConfig(
        vocab_size=vocab_size, layers=draw(st.integers(1, 3)), width=2 * heads * draw(st.integers(1, 4)), heads=heads
    )


def forward_flops(config: DecoderConfig, B: int, T: int) -> int:
    """Return two operations for each multiplication of the decoder's matrix products.

    A layer multiplies each token with W x 3W, W x W, W x 2F and F x W weights, F = floor(8W/3), and each pair of
    positions in W features twice (scores, values); the head multiplies each token with W x V weights.
    """
    W, F = config.width, 8 * config.width // 3
    weights = config.layers * (4 * W * W + 3 * W * F) + W * config.vocab_size
    return 2 * B * T * weights + 2 * 2 * config.layers * B * T * T * W


@given(student=configs(vocab_size=11), teacher=st.none() | configs(vocab_size=11), B=SIZES, T=st.integers(1, 9))
@example(
    student=DecoderConfig(vocab_size=11, layers=1, width=2, heads=1),
    teacher=DecoderConfig(vocab_size=11, layers=2, width=8, heads=2),
    B=2,
    T=3,
)
def falsify_decoders_have_their_closed_form(
    subject: Any, device: str, student: DecoderConfig, teacher: DecoderConfig | None, B: int, T: int
) -> None:
    models = [None if config is None else Decoder(config).to(device) for config in (teacher, student)]
    seen = subject.step_flops(*models, (B, T))
    once = 0 if teacher is None else forward_flops(teacher, B, T)
    expected = once + 3 * forward_flops(student, B, T)
    assert seen == expected and type(seen) is int, (
        f"a step of {student} on [{B}, {T}] tokens with the teacher {teacher} has {seen!r} operations; expected "
        f"{once} + 3 * {forward_flops(student, B, T)} = {expected}"
    )


class Noisy(nn.Module):
    """A module with all that a forward may change: BatchNorm statistics, dropout, draws of the CPU's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        torch.rand(3)
        torch.nn.functional.dropout(torch.ones(3))
        x = self.embedding(tokens)
        logits: Tensor = self.head(self.drop(self.norm(x.flatten(0, 1)))).unflatten(0, tokens.shape)
        return logits


def _state(name: str, module: nn.Module) -> dict[str, Any]:
    """Return everything of a module that a count could change, by what it is."""
    seen: dict[str, Any] = {f"{name}'s training flags": [part.training for part in module.modules()]}
    for tensor, x in (*module.named_parameters(), *module.named_buffers()):
        gradient = None if x.grad is None else x.grad.tolist()
        seen[f"{name}'s {tensor}"] = (id(x), x.device.type, x.requires_grad, x.tolist())
        seen[f"{name}'s gradient of {tensor}"] = gradient
    return seen


@given(shared=st.booleans(), gradients=st.booleans(), training=st.booleans(), seed=st.integers(0, 2**32))
def falsify_count_has_no_side_effect(
    subject: Any, device: str, shared: bool, gradients: bool, training: bool, seed: int
) -> None:
    student = Noisy().to(device).train(training)
    teacher = student if shared else Noisy().to(device)
    if gradients:
        for weight in student.parameters():
            weight.grad = torch.ones_like(weight)
    torch.manual_seed(seed)
    before = {**_state("teacher", teacher), **_state("student", student), **_generators(device)}
    subject.step_flops(teacher, student, (2, 3))
    after = {**_state("teacher", teacher), **_state("student", student), **_generators(device)}
    changed = [what for what in before if before[what] != after.get(what)]
    assert not changed, f"the count changed {', '.join(changed)}"


def _generators(device: str) -> dict[str, list[int]]:
    states = {"the CPU's generator": torch.get_rng_state()}
    if device == "cuda":
        states["the generator of CUDA"] = torch.cuda.get_rng_state()
    return {name: state.tolist() for name, state in states.items()}
