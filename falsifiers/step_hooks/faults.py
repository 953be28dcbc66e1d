"""Wrong versions of public functions: the faults that the contract `step-hooks` declares."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import replace
from typing import Any


def sums_added_up(original: Any, *given: Any, after: Any = None, **others: Any) -> Any:
    """Report after each micro-batch the sums of the window so far."""
    so_far: dict[str, Any] = {}

    def added(micro_batch: int, sums: Any, count: Any) -> None:
        for name, each in {**sums, "count": count}.items():
            so_far[name] = so_far.get(name, 0) + each
        after(micro_batch, so_far, so_far["count"])

    return original(*given, after=after and added, **others)


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


def hooks_swapped(original: Any, callbacks: Sequence[Any], event: Any, context: Any) -> Any:
    """Exchange the hooks before and after the update."""
    names = {"PRE_OPTIMIZER_STEP": "OPTIMIZER_STEP", "OPTIMIZER_STEP": "PRE_OPTIMIZER_STEP"}
    swapped = type(event)[names.get(event.name, event.name)]
    return original(callbacks, swapped, replace(context, hook=swapped.value))


def values_kept(original: Any, self: Any) -> None:
    """Keep the values of the step before."""
    kept = getattr(self, "validation", {})
    original(self)
    self.validation = kept


def sequences_late(original: Any, self: Any, sums: Any, sequences: int) -> None:
    """Count the sequences of a step only if an earlier one had some."""
    original(self, sums, sequences if self.steps else 0)


def hooks_on_rank_0_alone(original: Any, self: Any, hook: Any, context: Any) -> Any:
    """Call no hook on the other ranks, but the last one."""
    from reference_trainer.training.schedule import Action

    return original(self, hook, context) if context.rank == 0 else Action.CONTINUE


def numbered_as_one_machine(original: Any, self: Any, *modules: Any) -> None:
    """Number the processes of a machine as if it were the only one."""
    original(self, *modules)
    self.local_rank = self.rank


def metrics_of_this_rank(self: Any, sums_K: Any) -> Any:
    """Leave the sums as they are on this rank."""
    return sums_K


def path_on_rank_0_alone(original: Any, self: Any, *given: Any) -> Any:
    """Return the path of the checkpoint to rank 0 only, so that others have no on_save."""
    path = original(self, *given)
    return path if self.ranks.rank == 0 else None


def metrics_lost(original: Any, record: Any, *given: Any) -> None:
    """Begin a resumed run without the metrics of the step that was saved."""
    original(record, *given)
    record.begin_step()


def metrics_of_an_older_step(original: Any, record: Any, *given: Any) -> None:
    """Begin a resumed run with the last metrics if the schedule logs the saved step now."""
    original(record, *given)
    step, every = record.state.position.step, record.schedule.log_every
    if step and every and step % every == 0:
        record.metrics = record.state.metrics


def peak_memory(*given: Any) -> int:
    """Return the largest memory that the process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
