"""Records the seeds that a script sets between two steps, and the states of the random generators after a seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

import torch

from . import frames
from .trace import Event

if TYPE_CHECKING:
    from .observer import Observer

STEPS = 32
"""Number of steps at the start in which seeds are recorded."""


class Seeds:
    """Records the last seed since the previous step, and the generators' states at the first forward after this seed.

    Args:
        observer: The observer of this process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.facts: Optional[Event] = None
        """The last call of `torch.manual_seed` outside a forward since the previous step; None if there was none.

        `start`, `before` and `after` are hashes of the generators' states: after the call, before the first forward
        with gradients, and after this forward. `evaluated` is True if a forward without gradients ran between the call
        and the first forward with gradients.
        """

    def record_seed(self, seed: object, at: str) -> None:
        """Record a call of `torch.manual_seed`, after the call."""
        if self.observer.steps < STEPS and not self.observer.in_module:
            self.facts = {"seed": str(seed), "at": at, "start": _hash_of_states(), "evaluated": False}

    def begin_forward(self, grad: bool) -> None:
        """Record the states before the first forward with gradients after a seed, and whether others ran before it."""
        if self.facts is not None and "before" not in self.facts:
            if grad:
                self.facts["before"] = _hash_of_states()
            else:
                self.facts["evaluated"] = True

    def end_forward(self) -> None:
        """Record the states after the first forward with gradients after a seed."""
        if self.facts is not None and "before" in self.facts and "after" not in self.facts:
            self.facts["after"] = _hash_of_states()

    def at_step(self) -> Optional[Event]:
        """Return and forget the seed since the previous step; None if there was none, or no forward with gradients."""
        facts, self.facts = self.facts, None
        return facts if facts is not None and "after" in facts else None


def _hash_of_states() -> int:
    """Return a hash of the states of torch's generators for the CPU and for the current CUDA device."""
    state = zlib.crc32(torch.get_rng_state().numpy().tobytes())
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        state = zlib.crc32(torch.cuda.get_rng_state().numpy().tobytes(), state)
    return state


def install(observer: Callable[[], Observer]) -> None:
    """Wrap `torch.manual_seed`.

    Args:
        observer: Returns the observer of this process.
    """
    original = torch.random.manual_seed

    @frames.wraps(original)
    def manual_seed(seed: int) -> torch.Generator:
        generator = original(seed)
        active = observer()
        if active.is_active():
            with active.observing("seed"):
                active.seeds.record_seed(seed, active.sites.find(2)[0])
        return generator

    torch.manual_seed = torch.random.manual_seed = manual_seed
