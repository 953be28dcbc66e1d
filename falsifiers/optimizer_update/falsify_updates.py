"""An attack on what an update leaves alone.

The subject is that of `falsifiers.callbacks.real_run`, with `new_optimizer`.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.callbacks.lifecycle import Script, scripts
from falsifiers.callbacks.real_run import module_student, parts, recording_callbacks, run, tables
from falsifiers.support.steps import embedding
from reference_trainer.distillation.protocols import Batch


class UsedOnce(nn.Module):
    """Logits that are the sum of two tables' rows, the second one's in the first forward only."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.first, self.second, self.forwards = embedding(logits), embedding(logits.flip(0)), 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.forwards += 1
        total: Tensor = self.first(tokens)
        return total + self.second(tokens) if self.forwards == 1 else total


@given(script=scripts(st.none(), fewest=1))
def falsify_parameters_without_gradient_are_unchanged(subject: Any, device: str, script: Script) -> None:
    logits = torch.arange(9.0, dtype=torch.float64).reshape(3, 3).cos()
    module, seen, tokens = UsedOnce(logits).to(device), list[Tensor](), torch.tensor([[0, 1, 2]], device=device)

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            seen.append(module.second.weight.detach().clone())

    given = parts(device) | {"teacher": tables(logits.to(device), logits)[0], "student": module_student(module)}
    given |= {"batch_at": lambda *at: Batch(tokens=tokens, labels=tokens)}
    run(
        subject,
        script,
        recording_callbacks(1, act),
        given | {"optimizer": subject.new_optimizer(module.parameters(), 0.5)},
    )
    for step, now in enumerate(seen[1:], start=2):
        assert torch.equal(now, seen[0]), (
            f"step {step} does not use the second table, which was {seen[0].tolist()} and is {now.tolist()}"
        )
