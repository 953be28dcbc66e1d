"""Distillations on ranks that match hidden states of two widths, by a projection."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from falsifiers.resume.runs import Model, own


class Output(NamedTuple):
    """Logits and hidden states. FSDP2 looks for tensors in tuples, lists and dictionaries only."""

    logits: Tensor
    hidden_states: list[Tensor]


class WithStates(Model):
    """A model whose hidden states can be matched."""

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        logits = super().forward(tokens)
        states = self.embed(tokens)
        return Output(logits, [states[..., :3], states]) if output_hidden_states else logits


def matching(subject: Any) -> Any:
    """Return the distillation of models of two widths, whose hidden states are matched by a projection."""

    class Matching(own(subject)):  # the subject is any module
        def make_student(self) -> WithStates:
            return WithStates(5, seed=1)

        def make_teacher(self) -> Any:
            return WithStates(3, seed=2).eval()

    return Matching
