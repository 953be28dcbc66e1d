"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from typing import Any


def norm_after_clipping(original: Any, *given: Any, clip: float | None = None, **others: Any) -> Any:
    """Report the norm of the gradient that is left, in every context."""
    from reference_trainer.training.record import Record

    context = Record.context

    def clipped(self: Any, *event: Any) -> Any:
        norm, self.gradient_norm = self.gradient_norm, self.gradient_norm
        if norm is not None and clip is not None:
            self.gradient_norm = norm.clamp(max=clip)
        try:
            return context(self, *event)
        finally:
            self.gradient_norm = norm

    Record.context = clipped
    try:
        return original(*given, clip=clip, **others)
    finally:
        Record.context = context


def hooks_on_rank_0_alone(original: Any, self: Any, hook: Any, context: Any) -> Any:
    """Call no hook on the other ranks, but the last one."""
    from reference_trainer.training.schedule import Action

    return original(self, hook, context) if context.rank == 0 else Action.CONTINUE


def metrics_of_this_rank(self: Any, sums_K: Any) -> Any:
    """Leave the sums as they are on this rank."""
    return sums_K
