"""Records the seeds that a script sets between two steps, and whether the training draws random numbers after them."""

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
"""Number of first steps in which seeds are recorded."""


class Seeds:
    """The last seed since the previous step, and the states of the generators at the first forward after this seed.

    Args:
        observer: The observer of this process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.facts: Optional[Event] = None
        """Facts about the last call of `torch.manual_seed` since the previous step; None without such a call.

        `start`, `before` and `after` are hashes of the generators' states: right after the call, before the first
        forward with gradients, and after this forward. `evaluated` is True if a forward without gradients came before.
        """

    def record_seed(self, seed: object, at: str) -> None:
        """Record a call of `torch.manual_seed` after the call."""
        if self.observer.steps < STEPS and not self.observer.in_module:
            self.facts = {"seed": str(seed), "at": at, "start": _hash_of_states(), "evaluated": False}

    def begin_forward(self, grad: bool) -> None:
        """Record the call of an outermost module before the call."""
        if self.facts is not None and "before" not in self.facts:
            if grad:
                self.facts["before"] = _hash_of_states()
            else:
                self.facts["evaluated"] = True

    def end_forward(self) -> None:
        """Record the call of an outermost module after the call."""
        if self.facts is not None and "before" in self.facts and "after" not in self.facts:
            self.facts["after"] = _hash_of_states()

    def at_step(self) -> Optional[Event]:
        """Return and remove the facts since the previous step; None if no seed was set, or no forward followed."""
        facts, self.facts = self.facts, None
        return facts if facts is not None and "after" in facts else None


def _hash_of_states() -> int:
    """Return a hash of the states of the generators of the CPU and of the current CUDA device."""
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
