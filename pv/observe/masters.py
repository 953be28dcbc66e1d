"""Records the gradients that a script copies from the weights of a model to the master weights of an optimizer.

Master weights are a copy of the weights in higher precision. A backward pass gives gradients to the weights of the
model, never to the master weights, so the model's weights show whether a step uses a new gradient.
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
COMPARED_STEPS = 20
"""Number of first steps of an optimizer of master weights in which gradients are compared."""
PAIRS = 12
"""Number of pairs that are compared, as a sample of all pairs."""


class WeightPairs:
    """Pairs of a model weight and its master weight, of one optimizer.

    Args:
        pairs: The pairs. They are stored as weak references.
    """

    def __init__(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self.pairs = [(weakref.ref(weight), weakref.ref(master)) for weight, master in pairs]
        self.last_versions: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        """By id of a weight: its gradient after the last backward pass, as a weak reference and a version number."""

    def live(self) -> list[tuple[Tensor, Tensor]]:
        """Return the pairs whose tensors still exist."""
        pairs = [(weight(), master()) for weight, master in self.pairs]
        return [(weight, master) for weight, master in pairs if weight is not None and master is not None]


class Masters:
    """The master weights of one process.

    Args:
        observer: The observer of the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.copies: dict[int, WeightPairs] = {}
        """The compared pairs, by number of the optimizer."""

    def before_step(self, optimizer: torch.optim.Optimizer, state: OptimizerState) -> Optional[Tensor]:
        """Return the distance of the master weights' gradients from a multiple of the model's gradients.

        Args:
            optimizer: The optimizer that is about to take a step.
            state: The recorded state of the optimizer.

        Returns:
            [2]: the relative distance to the nearest multiple, and its factor. None if the optimizer holds the weights
            of a model itself, or if no model has weights of the same shapes with gradients.
        """
        if state.steps < SEARCHES and state.number not in self.copies and isinstance(optimizer, torch.optim.Optimizer):
            all_pairs = self._pairs(self.observer.parameters_of(optimizer))
            if all_pairs:
                self.copies[state.number] = WeightPairs(all_pairs[:: max(1, len(all_pairs) // PAIRS)][:PAIRS])
        pairs = self.copies.get(state.number)
        if pairs is None or state.steps >= COMPARED_STEPS:
            return None
        gradients = [
            (few(master.grad).double(), few(weight.grad).double())
            for weight, master in pairs.live()
            if weight.grad is not None and master.grad is not None
        ]
        if not gradients:
            return None
        # The least-squares factor: copied gradients may be scaled, such as by a loss scale, but not turned.
        of_masters, of_model = (torch.cat(parts) for parts in zip(*gradients))
        factor = (of_masters * of_model).sum() / (of_model * of_model).sum()
        return torch.stack([(of_masters - factor * of_model).norm() / of_masters.norm(), factor])

    def _pairs(self, masters: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return the pairs of a model weight and a master weight; [] if the shapes fit no model.

        Three orders are tried: the order of the model, matrices first, and matrices last.
        """
        ids = {id(p) for p in masters}
        if len({p.device for p in masters}) != 1:
            return []
        for module in list(self.observer.models):
            weights = [p for p in module.parameters() if p.grad is not None and not p.grad.is_sparse and local(p) is p]
            if any(id(p) in ids for p in module.parameters()) or len(weights) != len(masters):
                continue
            # Scripts collect master weights in the order of the model, or in two groups: with and without decay.
            for key in (None, lambda p: p.dim() < 2, lambda p: p.dim() >= 2):
                ordered = weights if key is None else sorted(weights, key=key)
                if all(w.shape == m.shape and w.device == m.device for w, m in zip(ordered, masters)):
                    return list(zip(ordered, masters))
        return []

    def before_backward(self) -> dict[str, object]:
        """Return, by number of the optimizer, whether gradients of the last pass are left over in the model."""
        left_over: dict[str, object] = {}
        for number, pairs in self.copies.items():
            weights = [weight for weight, _ in pairs.live()]
            # The next pass adds to gradients that were not cleared. Zeros count as cleared.
            unchanged = weights and all(is_as_before(p, pairs.last_versions) for p in weights)
            left_over[str(number)] = (
                torch.stack([few(p.grad).any() for p in weights if p.grad is not None]).any() if unchanged else False
            )
        return left_over

    def after_backward(self, left_over: dict[str, object]) -> dict[str, object]:
        """Record the gradients after a pass.

        Args:
            left_over: The result of `before_backward`.

        Returns:
            The entries of `left_over` for the optimizers whose gradients the pass has changed.
        """
        reached = {}
        for number, pairs in self.copies.items():
            weights = [weight for weight, _ in pairs.live()]
            if str(number) in left_over and any(not is_as_before(p, pairs.last_versions) for p in weights):
                reached[str(number)] = left_over[str(number)]
            pairs.last_versions = {id(p): (weakref.ref(p.grad), version(p.grad)) for p in weights if p.grad is not None}
        return reached


def few(tensor: Tensor) -> Tensor:
    """Return at most 32 elements of a gradient, evenly spread."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // 32)][:32]
