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
    """A step has the teacher's forward once and the student's three times: the backward is two forwards."""
    models = [None if config is None else Decoder(config).to(device) for config in (teacher, student)]
    seen = subject.step_flops(*models, (B, T))
    once = 0 if teacher is None else forward_flops(teacher, B, T)
    expected = once + 3 * forward_flops(student, B, T)
    assert seen == expected and type(seen) is int, (
        f"a step of {student} on [{B}, {T}] tokens with the teacher {teacher} has {seen!r} operations; expected "
        f"{once} + 3 * {forward_flops(student, B, T)} = {expected}"
    )
    parameters = sum(weight.numel() for weight in models[1].parameters() if weight.dim() == 2)
    parameters -= student.vocab_size * student.width  # the embedding multiplies nothing
    attention = 12 * student.layers * B * T * T * student.width
    assert seen - once == 6 * parameters * B * T + attention, (
        f"a step of {student} without its teacher has {seen - once} operations; expected 6 for each of "
        f"{parameters} multiplied weights and {B * T} tokens, and {attention} for attention"
    )


class Work(nn.Module):
    """Logits by one product of V x V weights; in train mode by two more; `.logits` of an object if `wrapped`."""

    def __init__(self, V: int = 3, *, wrapped: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, V)
        self.linear = nn.Linear(V, V, bias=False)
        self.wrapped = wrapped

    def forward(self, tokens: Tensor) -> Any:
        logits = self.linear(self.embedding(tokens))
        if self.training:
            logits = self.linear(self.linear(logits))
        self.__dict__["logits"] = logits
        return self if self.wrapped else logits


@given(V=SIZES, B=SIZES, T=SIZES, training=st.booleans(), wrapped=st.booleans())
def falsify_teacher_is_counted_in_eval_mode(
    subject: Any, V: int, B: int, T: int, training: bool, wrapped: bool
) -> None:
    teacher, student = Work(V, wrapped=wrapped).train(), Work(V, wrapped=wrapped).train(training)
    seen, product = subject.step_flops(teacher, student, (B, T)), 2 * B * T * V * V
    expected = product + 3 * product * (3 if training else 1)
    assert seen == expected, (
        f"a teacher with 1 product in eval mode and a student {'with 3 in train' if training else 'with 1 in eval'} "
        f"mode have {seen} operations; expected {expected}"
    )
    modes = [module.training for module in (*teacher.modules(), *student.modules())]
    assert modes == [True] * 3 + [training] * 3, f"the training flags are {modes}; expected those before the count"


@given(V=SIZES, B=SIZES, T=SIZES)
def falsify_frozen_weights_have_no_gradient(subject: Any, V: int, B: int, T: int) -> None:
    student = Work(V).eval()
    student.embedding.requires_grad_(False)
    seen, product = subject.step_flops(None, student, (B, T)), 2 * B * T * V * V
    assert seen == 2 * product, (
        f"a student of one product of {product} operations, whose input needs no gradient, has {seen} operations; "
        f"expected 2 * {product}: its forward and the gradient of its weights"
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
