"""Attacks on the gradient that an optimizer is given: of the whole window, clipped once, at the rate of its step.

The subject is that of `falsifiers.callbacks.real_run`. The oracle is autograd through the textbook loss, in float64.
"""

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.callbacks.real_run import SETTINGS, after_steps, module_student, tables
from falsifiers.support.documents import nats
from reference_trainer.distillation.protocols import Batch
from reference_trainer.plan.schedule import Schedule
from reference_trainer.training.state import UpdateOptions

TEACHER = ((2.0, 0.0, -1.0), (0.0, 3.0, 0.0), (1.0, -2.0, 0.0))
TOKENS = ((0, 1, 2), (2, 2, 0), (1, 0, 1), (0, 0, 2))
STEPS = 3
CLOSE = 1e-9
MARGIN = 1e-6  # of PyTorch: the gradient is multiplied by clip / (norm + 1e-6)


class Two(nn.Module):
    """Logits that are a table's row plus a bias; a third parameter is never used."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(TEACHER, dtype=torch.float64, device=device).flip(1))
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64, device=device))
        self.unused = nn.Parameter(torch.ones(1, dtype=torch.float64, device=device))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens] + self.bias


class Kept(torch.optim.SGD):
    """Optimizer that keeps the gradients and rates of its steps and changes nothing."""

    def __init__(self, module: Two) -> None:
        super().__init__([{"params": [module.table, module.unused]}, {"params": [module.bias]}], lr=99.0)
        self.gradients: list[list[Tensor]] = []
        self.rates: list[list[float]] = []

    def step(self, closure: Any = None) -> Any:
        self.rates.append([group["lr"] for group in self.param_groups])
        every = [each.grad for group in self.param_groups for each in group["params"] if each.grad is not None]
        self.gradients.append([gradient.clone() for gradient in every])


def _batch(number: int, device: str) -> Batch:
    tokens = torch.tensor([TOKENS[number % len(TOKENS)]], device=device)
    return Batch(tokens=tokens, labels=tokens)


def _run(subject: Any, device: str, accumulation: int, clip: float | None, log_every: int) -> tuple[Kept, list[Any]]:
    """Return the optimizer of a run, and the reported norm of each step, None where it has none."""
    module = Two(device)
    callbacks, norms = after_steps(lambda context: context.metrics.get("gradient_norm"))
    optimizer, teacher = Kept(module), torch.tensor(TEACHER, dtype=torch.float64, device=device)
    subject.train(
        tables(teacher, teacher)[0],
        module_student(module),
        lambda epoch, k: _batch(k - 1, device),
        optimizer,
        schedule=Schedule(epochs=1, steps_per_epoch=STEPS, accumulation=accumulation, log_every=log_every),
        objective=subject.Objective(**SETTINGS),
        learning_rate=lambda step: 1 / (step + 1),
        callbacks=callbacks,
        options=UpdateOptions(clip=clip),
    )
    return optimizer, norms


def _oracle(step: int, accumulation: int) -> list[Tensor]:
    """Return the gradient of the mean textbook loss over the scored tokens of the window of a step, from 1."""
    module = Two("cpu")
    window = [_batch(number, "cpu").tokens for number in range((step - 1) * accumulation, step * accumulation)]
    count, loss = sum(tokens.numel() - 1 for tokens in window), torch.zeros((), dtype=torch.float64)
    for tokens in window:
        logits, teacher = module(tokens)[0, :-1], torch.tensor(TEACHER, dtype=torch.float64)[tokens[0, :-1]]
        loss = loss + nats(logits, teacher, tokens[0, 1:])
    gradients = torch.autograd.grad(loss / count, [module.table, module.bias])
    return list(gradients)


def _norm(gradients: list[Tensor]) -> float:
    return math.sqrt(sum(float(each.square().sum()) for each in gradients))


ACCUMULATIONS = st.integers(1, 3)
CLIPS = st.sampled_from([1e-3, 0.1, 0.3, 0.5, 1.0, 100.0])


@given(accumulation=ACCUMULATIONS, clip=CLIPS, log_every=st.sampled_from([0, 1, 2]))
def falsify_clipping(subject: Any, device: str, accumulation: int, clip: float, log_every: int) -> None:
    plain, norms = _run(subject, device, accumulation, None, log_every)
    clipped, same_norms = _run(subject, device, accumulation, clip, log_every)
    rates = [[1 / (step + 1)] * 2 for step in range(1, STEPS + 1)]
    assert clipped.rates == rates, f"the groups of the optimizer have the rates {clipped.rates}; expected {rates}"
    for step, (got, free) in enumerate(zip(clipped.gradients, plain.gradients, strict=True), start=1):
        whole = _oracle(step, accumulation)
        norm = _norm(whole)
        what = f"step {step} of {accumulation} micro-batches, norm {norm:.6g}, clip {clip}"
        _assert_close(f"{what}: the gradient without clipping", free, whole)
        logged = bool(log_every) and step % log_every == 0
        for seen in (norms[step - 1], same_norms[step - 1]):
            close = seen is not None and math.isclose(seen, norm, rel_tol=CLOSE) if logged else seen is None
            assert close, f"{what}, logged every {log_every}: the reported norm is {seen}"
        if norm + MARGIN < clip:
            same = all(map(torch.equal, got, free))
            assert same, f"{what}: the gradient is {got}; expected the one without clipping, {free}"
        else:
            assert _norm(got) <= clip * (1 + CLOSE), f"{what}: the norm after clipping is {_norm(got)}"
            _assert_close(f"{what}: the clipped gradient", got, [each * clip / (norm + MARGIN) for each in whole])


def _assert_close(what: str, seen: list[Tensor], expected: list[Tensor]) -> None:
    assert len(seen) == len(expected), f"{what} has {len(seen)} tensors; expected {len(expected)}"
    for got, wanted in zip(seen, expected, strict=True):
        assert torch.allclose(got.cpu(), wanted, rtol=CLOSE, atol=CLOSE), f"{what} is {got}; expected {wanted}"
