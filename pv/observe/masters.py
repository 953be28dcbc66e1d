"""Records the gradients that a script copies from the weights of a model to the master weights of an optimizer.

A backward pass gives gradients to the weights of the model, never to the master weights. Whether a step uses a new
gradient is therefore checked at the weights of the model.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Optional

import torch
from torch import Tensor

from .sharding import is_as_before, local, version

if TYPE_CHECKING:
    from .observer import Observer, OptimizerState

SEARCHES = 3
"""Number of first steps of an optimizer before which the model weights of its master weights are searched."""
COPIES = 20
"""Number of first steps of an optimizer of master weights in which gradients are compared."""
PAIRS = 12
"""Number of pairs that are compared, as a sample of all pairs."""


class Copies:
    """The pairs of a weight and its master weight, of one optimizer."""

    def __init__(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self.pairs = [(weakref.ref(weight), weakref.ref(master)) for weight, master in pairs]
        self.last_versions: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        """By id of a weight: its gradient after the last backward pass, as a weak reference and a version number."""

    def live(self) -> list[tuple[Tensor, Tensor]]:
        """Return the pairs whose tensors still exist."""
        both = [(weight(), master()) for weight, master in self.pairs]
        return [(weight, master) for weight, master in both if weight is not None and master is not None]


class Masters:
    """The master weights of one process.

    Args:
        observer: The observer of the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.copies: dict[int, Copies] = {}
        """By number of the optimizer."""

    def before_step(self, optimizer: torch.optim.Optimizer, state: OptimizerState) -> Optional[Tensor]:
        """Return how far the gradients of the master weights are from a multiple of the model's gradients.

        Returns:
            [2]: the relative distance to the nearest multiple, and its factor. None if the optimizer holds the weights
            of a model itself, or if no model has weights of the same shapes with gradients.
        """
        if state.steps < SEARCHES and state.number not in self.copies and isinstance(optimizer, torch.optim.Optimizer):
            pairs = self._pairs(self.observer.parameters_of(optimizer))
            if pairs:
                self.copies[state.number] = Copies(pairs[:: max(1, len(pairs) // PAIRS)][:PAIRS])
        copies = self.copies.get(state.number)
        if copies is None or state.steps >= COPIES:
            return None
        sides = [
            (few(master.grad).double(), few(weight.grad).double())
            for weight, master in copies.live()
            if weight.grad is not None and master.grad is not None
        ]
        if not sides:
            return None
        # The least-squares factor: copied gradients may be scaled, such as by a loss scale, but point the same way.
        applied, passed = (torch.cat(side) for side in zip(*sides))
        factor = (applied * passed).sum() / (passed * passed).sum()
        return torch.stack([(applied - factor * passed).norm() / applied.norm(), factor])

    def _pairs(self, masters: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return the pairs of a model weight and a master weight; [] if the shapes fit no model.

        Three orders are tried: the order of the model, matrices first, and matrices last.
        """
        mine = {id(p) for p in masters}
        if len({p.device for p in masters}) != 1:
            return []
        for module in list(self.observer.models):
            weights = [p for p in module.parameters() if p.grad is not None and not p.grad.is_sparse and local(p) is p]
            if any(id(p) in mine for p in module.parameters()) or len(weights) != len(masters):
                continue
            # Scripts collect master weights in the order of the model, or in two groups: with and without decay.
            for order in (None, lambda p: p.dim() < 2, lambda p: p.dim() >= 2):
                rows = weights if order is None else sorted(weights, key=order)
                if all(w.shape == m.shape and w.device == m.device for w, m in zip(rows, masters)):
                    return list(zip(rows, masters))
        return []

    def before_backward(self) -> dict[str, object]:
        """Return, by optimizer, whether the model's gradients were not cleared since they were copied."""
        carried: dict[str, object] = {}
        for number, copies in self.copies.items():
            weights = [weight for weight, _ in copies.live()]
            # The next pass adds to gradients that were not cleared. Zeros count as cleared.
            kept = weights and all(is_as_before(p, copies.last_versions) for p in weights)
            carried[str(number)] = (
                torch.stack([few(p.grad).any() for p in weights if p.grad is not None]).any() if kept else False
            )
        return carried

    def after_backward(self, carried: dict[str, object]) -> dict[str, object]:
        """Record the gradients after a pass; return the entries of `carried` whose gradients the pass has changed."""
        reached = {}
        for number, copies in self.copies.items():
            weights = [weight for weight, _ in copies.live()]
            if str(number) in carried and any(not is_as_before(p, copies.last_versions) for p in weights):
                reached[str(number)] = carried[str(number)]
            copies.last_versions = {
                id(p): (weakref.ref(p.grad), version(p.grad)) for p in weights if p.grad is not None
            }
        return reached


def few(tensor: Tensor) -> Tensor:
    """Return at most 32 elements of a gradient, evenly spread."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // 32)][:32]
