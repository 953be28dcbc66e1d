"""Attacks on the optimizer updates of a run: one per step, at its rate, before on_step_end is called.

The subject is that of `falsifiers.callbacks.real_run`, with `new_optimizer`.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from torch import Tensor, nn

from falsifiers.callbacks.plain_loop import SAME, ByHand, RealRun, Text, assert_same_fields, texts
from falsifiers.callbacks.real_run import SETTINGS, module_student, parts, recording_callbacks, run, tables
from reference_trainer.distillation.step import kd_step


class TwoTables(nn.Module):
    """Logits that are the sum of two tables' rows, each a parameter of its own."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.first = nn.Embedding.from_pretrained(logits.clone(), freeze=False)
        self.second = nn.Embedding.from_pretrained(logits.flip(0).clone(), freeze=False)

    def forward(self, tokens: Tensor) -> Tensor:
        total: Tensor = self.first(tokens) + self.second(tokens)
        return total

    def weights(self) -> Tensor:
        return torch.stack([parameter.detach() for parameter in self.parameters()])


class Watched(torch.optim.SGD):
    """Optimizer that records its steps and their rates."""

    def __init__(self, module: TwoTables, log: list[tuple[str, Any]]) -> None:
        super().__init__([{"params": [parameter], "lr": 99.0} for parameter in module.parameters()])
        self.log = log

    def step(self, closure: Any = None) -> Any:
        self.log.append(("updated at", [group["lr"] for group in self.param_groups]))
        return super().step(closure)


def _by_hand(text: Text, device: str) -> list[Tensor]:
    """Return the weights after each step: weight - rate · gradient of that step alone."""
    teacher_logits, student_logits = text.logits(device)
    teacher, module = tables(teacher_logits, student_logits)[0], TwoTables(student_logits)
    weights = []
    for step in range(text.script.total):
        module.zero_grad()
        batch = text.batch(step, device)
        kd_step(teacher, module_student(module), batch, **SETTINGS)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 1 / (step + 2) * parameter.grad
        weights.append(module.weights())
    return weights


class UsedOnce(TwoTables):
    """Module that uses its second table in its first forward only."""

    forwards = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.forwards += 1
        total: Tensor = super().forward(tokens) if self.forwards == 1 else self.first(tokens)
        return total


@given(text=texts(impossible=False))
def falsify_parameters_without_gradient_are_unchanged(subject: Any, device: str, text: Text) -> None:
    teacher_logits, student_logits = text.logits(device)
    module, seen = UsedOnce(student_logits), list[Tensor]()

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            seen.append(module.second.weight.detach().clone())

    given = parts(device) | {"teacher": tables(teacher_logits, student_logits)[0]}
    given |= {"student": module_student(module), "optimizer": subject.new_optimizer(module.parameters(), 0.5)}
    calls = iter(range(text.script.total))
    given |= {"batch_at": lambda *at: text.batch(next(calls), device)}
    run(subject, text.script, recording_callbacks(1, act), given)
    for step, now in enumerate(seen[1:], start=2):
        assert torch.equal(now, seen[0]), (
            f"step {step} does not use the second table, which was {seen[0].tolist()} and is {now.tolist()}"
        )


@given(text=texts(impossible=False))
def falsify_update_precedes_on_step_end(subject: Any, device: str, text: Text) -> None:
    teacher_logits, student_logits = text.logits(device)
    module, log, weights = TwoTables(student_logits), list[tuple[str, Any]](), list[Tensor]()

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            log.append(("called for", context.step))
            weights.append(module.weights())

    given = parts(device) | {"teacher": tables(teacher_logits, student_logits)[0]}
    given |= {"student": module_student(module), "optimizer": Watched(module, log)}
    calls = iter(range(text.script.total))
    given |= {"batch_at": lambda *at: text.batch(next(calls), device), "learning_rate": lambda step: 1 / (step + 1)}
    run(subject, text.script, recording_callbacks(1, act), given)
    steps = range(1, text.script.total + 1)
    expected = [entry for step in steps for entry in (("updated at", [1 / (step + 1)] * 2), ("called for", step))]
    assert log == expected, f"updates (with the rate of each group) and on_step_end came as {log}; expected {expected}"
    for step, seen, wanted in zip(steps, weights, _by_hand(text, device), strict=True):
        assert torch.allclose(seen, wanted, rtol=SAME, atol=SAME), (
            f"on_step_end of step {step} sees the weights {seen.tolist()}; expected {wanted.tolist()}: weight - "
            f"rate · gradient"
        )


@given(text=texts())
def falsify_epoch_means_are_over_tokens(subject: Any, device: str, text: Text) -> None:
    seen, expected = RealRun(subject, text, device), ByHand(text, device)
    ends = [[m for m in side.moments if m.event == "on_epoch_end"] for side in (seen, expected)]
    assert_same_fields(*ends, ("loss", "epoch", "learning_rate", "best_loss", "elapsed_s", "tokens"))
