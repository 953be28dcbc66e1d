"""A distillation whose teacher counts its forwards, and is interrupted in one of them."""

from typing import Any

from torch import Tensor, nn

from reference_trainer.pipeline.distill import Distillation

__all__ = ["Counted", "Counting"]


class Counted:
    """Forwards of the teacher so far, and the number of the one that is interrupted, from 1; 0 for none.

    logits: the largest number of logits that a forward returned.
    """

    forwards = 0
    interrupted = 0
    logits = 0


class _Teacher(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens: Tensor) -> Any:
        Counted.forwards += 1
        if Counted.forwards == Counted.interrupted:
            raise KeyboardInterrupt
        logits_BTV = self.module(tokens)
        Counted.logits = max(Counted.logits, logits_BTV.numel())
        return logits_BTV


class Counting(Distillation):
    """The packaged distillation with such a teacher."""

    def make_teacher(self) -> nn.Module:
        return _Teacher(super().make_teacher())
