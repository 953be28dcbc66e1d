"""Agreement of the ranks of a run on the answers of their callbacks and on requests to stop.

Both travel as flags with the counts of a step, so that no step has a reduction of its own for them. The strongest
answer of all ranks counts on each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from reference_trainer.plan.schedule import Action
from reference_trainer.ranks.parallel import Parallel

__all__ = ["Agreement"]

REQUESTED, SKIPPED, STOPPED = range(3)
"""Places of the flags."""


class Agreement:
    """The answers of this rank that are not carried out yet, and the flags of all ranks. One process only has its own.

    An answer that is given in a step travels with the counts of the next one, which is then left out: before its first
    forward on the CPU. On a GPU the flags of the step before are read, which are there already, so one more step is
    taken. Every rank calls the same methods in the same order.
    """

    def __init__(self, parallel: Parallel, stop_requested: Callable[[], bool]) -> None:
        self._parallel, self._stop_requested = parallel, stop_requested
        self._alone = parallel.world_size == 1
        self._own = Action.CONTINUE
        self._sent: _Copied | None = None  # the last flags, summed over ranks
        self._known: Sequence[int] = (0, 0, 0)

    def noted(self, answer: Action) -> Action:
        """Note an answer of this rank; return what is carried out at once, which is nothing on several ranks."""
        if self._alone:
            return answer
        self._own = max(self._own, answer)
        return Action.CONTINUE

    def flags(self) -> tuple[bool, bool, bool]:
        """Return the flags of this rank: asked to stop, answered SKIP, answered STOP."""
        if self._alone:
            return False, False, False
        return self._stop_requested(), self._own is Action.SKIP, self._own is Action.STOP

    def leaves_out(self, flags: Tensor) -> bool:
        """Return whether the step with these flags, summed over ranks, is left out because of an answer."""
        if self._alone:  # nothing is read from the device
            return False
        before, self._sent = self._sent, _Copied(flags)
        known = self._sent if flags.device.type == "cpu" else before
        self._known = (0, 0, 0) if known is None else known.numbers()
        return self.answer is not Action.CONTINUE

    @property
    def answer(self) -> Action:
        """Return the strongest answer of all ranks, as far as the steps have brought it."""
        return _strongest(self._known)

    def agreed(self, answer: Action, *, between_epochs: bool = False) -> Action:
        """Return the strongest answer of all ranks so far, with a reduction of its own; of one process, `answer`.

        between_epochs: a SKIP is forgotten then, because it ends an open epoch only.
        """
        if self._alone:
            return answer
        summed = self._parallel.sum_counts(torch.tensor(self.flags(), dtype=torch.int64))
        if between_epochs:
            self._own = self._own if self._own is Action.STOP else Action.CONTINUE
            self._sent = None
        return _strongest(_Copied(summed).numbers())

    def is_leaving(self) -> bool:
        """Return whether the run was asked to stop, on any rank, before the step that has just been taken."""
        return self._stop_requested() if self._alone else bool(self._known[REQUESTED])

    def is_asked_alone(self) -> bool:
        """Return whether a run of one process was asked to stop. Several ranks cannot agree on it after an error."""
        return self._alone and self._stop_requested()


def _strongest(numbers: Sequence[int]) -> Action:
    """Return the strongest answer of ranks, of which so many set each flag."""
    if numbers[STOPPED]:
        return Action.STOP
    return Action.SKIP if numbers[SKIPPED] else Action.CONTINUE


class _Copied:
    """A copy of numbers on the host, without a wait for what follows them on the device."""

    def __init__(self, numbers: Tensor) -> None:
        self._event = None
        if not numbers.is_cuda:
            self._copy = numbers.to("cpu", non_blocking=True)
        else:
            # Pinned memory: a copy to pageable memory returns once it is done, so it waits for all that precedes it.
            self._copy = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
            self._copy.copy_(numbers, non_blocking=True)
            self._event = torch.cuda.current_stream(numbers.device).record_event()

    def numbers(self) -> list[int]:
        if self._event is not None:
            self._event.synchronize()
        counts: list[int] = self._copy.tolist()
        return counts
