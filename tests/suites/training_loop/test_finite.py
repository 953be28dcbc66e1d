"""A loop that refuses a loss that is not finite is not accused, whatever it does in place of the step."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from pv.suites.training_loop import loop
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.loop import Batch, Sums, Training
from tests.suites.training_loop.planting import attack

train_step, refuse = loop.train_step, loop.refuse_not_finite


def window_left_out(training: Training, window: Sequence[Batch]) -> None:
    try:
        train_step(training, window)
    except FloatingPointError:
        training.state.unlogged.pop()


def micro_batch_left_out(training: Training, window: Sequence[Batch]) -> list[Sums]:
    return _without(training, window, lambda losses, counts: sum(counts))


def micro_batch_left_out_and_counted(training: Training, window: Sequence[Batch]) -> list[Sums]:
    every = sum(loop.scored(batch["labels"]) for batch in window)
    return _without(training, window, lambda losses, counts: every)


def _without(training: Training, window: Sequence[Batch], tokens: Callable[[Any, list[int]], int]) -> list[Sums]:
    """Compute the gradient over the micro-batches with a finite loss. Raise FloatingPointError if there is none."""
    training.optimizer.zero_grad()
    rows = [(loop.loss_sum(training.model, batch), loop.scored(batch["labels"])) for batch in window]
    kept = [(nats, count) for nats, count in rows if nats.isfinite()]
    if not kept:
        raise FloatingPointError
    losses, counts = zip(*kept, strict=True)
    (torch.stack(losses).sum() / tokens(losses, list(counts))).backward()
    return [(float(nats.detach()), count) for nats, count in kept]


def exit_of_a_script(window: Sequence[Sums], step: int) -> None:
    if not all(math.isfinite(nats) for nats, _ in window):
        sys.exit(1)


def raised_after_the_step(training: Training, window: Sequence[Batch]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "refuse_not_finite", lambda window, step: None)
        train_step(training, window)
    refuse([(float(parameter.detach().sum()), 1) for parameter in training.model.parameters()], training.state.step)


@pytest.mark.parametrize(
    ("part", "version"),
    [
        ("train_step", window_left_out),
        ("backward", micro_batch_left_out),
        ("refuse_not_finite", exit_of_a_script),
        ("train_step", raised_after_the_step),
    ],
)
def test_loop_that_counts_no_loss_that_is_not_finite_holds(
    part: str, version: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, part, version)
    attack("TL-FINITE-001", Bench(loop.Loop()))


def test_tokens_of_a_micro_batch_that_is_left_out_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "backward", micro_batch_left_out_and_counted)
    with pytest.raises(
        AssertionError, match="divided by the tokens of all micro-batches, including the one that is left"
    ):
        attack("TL-FINITE-001", Bench(loop.Loop()))


def test_loop_without_a_limit_keeps_an_infinite_gradient_as_it_is() -> None:
    parameter = torch.zeros(2)
    parameter.grad = torch.tensor([math.inf, 1.0])
    assert loop.clip([parameter, torch.zeros(1)], None) == math.inf
    assert parameter.grad.tolist() == [math.inf, 1.0]
