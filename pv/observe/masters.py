"""Records the gradients that a script copies from the weights of a model to the master weights of an optimizer.

Master weights are a copy of the weights of a model in higher precision. Backward passes compute gradients only of the
weights of the model, so these gradients show whether the step of the master weights uses a new gradient.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Optional

import torch
from torch import Tensor

from .sharding import is_unchanged, local, version

if TYPE_CHECKING:
    from .observer import Observer, OptimizerState

SEARCHES = 3
"""Before this number of first steps of an optimizer, a model whose weights match its parameters is searched."""
COMPARED_STEPS = 20
"""Number of first steps of an optimizer of master weights in which gradients are compared."""
PAIRS = 12
"""Largest number of compared pairs, a sample of all pairs."""


class WeightPairs:
    """Weak references to pairs of a model weight and its master weight.

    Args:
        pairs: The pairs of one optimizer.
    """

    def __init__(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self.pairs = [(weakref.ref(weight), weakref.ref(master)) for weight, master in pairs]
        self.last_versions: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        """Weak references to the gradients after the last backward pass, and their versions, by id of the weight."""

    def live(self) -> list[tuple[Tensor, Tensor]]:
        """Return the pairs whose tensors still exist."""
        pairs = [(weight(), master()) for weight, master in self.pairs]
        return [(weight, master) for weight, master in pairs if weight is not None and master is not None]


class Masters:
    """Finds the master weights of one process, and compares their gradients with the gradients of the models.

    Args:
        observer: The observer of the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.copies: dict[int, WeightPairs] = {}
        """The compared pairs, by number of the optimizer."""

    def before_step(self, optimizer: torch.optim.Optimizer, state: OptimizerState) -> Optional[Tensor]:
        """Compare the gradients of master weights with the gradients of the model, before a step.

        Args:
            optimizer: The optimizer that is about to take a step.
            state: The recorded state of the optimizer.

        Returns:
            A tensor with two elements: the distance of the master weights' gradients from the nearest multiple of the
            model's gradients, relative to their norm; and the factor of this multiple. None if the parameters of the
            optimizer are not master weights of a model, if no pair has two gradients, or after `COMPARED_STEPS` steps.
        """
        if state.steps < SEARCHES and state.number not in self.copies and isinstance(optimizer, torch.optim.Optimizer):
            all_pairs = self._pairs(self.observer.parameters_of(optimizer))
            if all_pairs:
                self.copies[state.number] = WeightPairs(all_pairs[:: max(1, len(all_pairs) // PAIRS)][:PAIRS])
        pairs = self.copies.get(state.number)
        if pairs is None or state.steps >= COMPARED_STEPS:
            return None
        gradients = [
            (evenly_spaced(master.grad).double(), evenly_spaced(weight.grad).double())
            for weight, master in pairs.live()
            if weight.grad is not None and master.grad is not None
        ]
        if not gradients:
            return None
        # Copied gradients may be multiplied by a factor, such as a loss scale. Estimate this factor by least squares.
        of_masters, of_model = (torch.cat(parts) for parts in zip(*gradients))
        factor = (of_masters * of_model).sum() / (of_model * of_model).sum()
        return torch.stack([(of_masters - factor * of_model).norm() / of_masters.norm(), factor])

    def _pairs(self, masters: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return the pairs of a model weight and a master weight; [] if no model has weights of these shapes.

        Three orders of the weights are tried: the order of the model, matrices first, and matrices last.
        """
        ids = {id(p) for p in masters}
        if len({p.device for p in masters}) != 1:
            return []
        for module in list(self.observer.models):
            weights = [p for p in module.parameters() if p.grad is not None and not p.grad.is_sparse and local(p) is p]
            if any(id(p) in ids for p in module.parameters()) or len(weights) != len(masters):
                continue
            # Scripts collect master weights in the order of the model, or in two groups: with and without weight decay.
            for key in (None, lambda p: p.dim() < 2, lambda p: p.dim() >= 2):
                ordered = weights if key is None else sorted(weights, key=key)
                if all(w.shape == m.shape and w.device == m.device for w, m in zip(ordered, masters)):
                    return list(zip(ordered, masters))
        return []

    def before_backward(self) -> dict[str, object]:
        """Return whether the model still has the gradients of the last backward pass, by number of the optimizer."""
        left_over: dict[str, object] = {}
        for number, pairs in self.copies.items():
            weights = [weight for weight, _ in pairs.live()]
            # If all gradients are 0, they were cleared.
            unchanged = bool(weights) and all(is_unchanged(p, pairs.last_versions) for p in weights)
            left_over[str(number)] = (
                unchanged and torch.stack([evenly_spaced(p.grad).any() for p in weights if p.grad is not None]).any()
            )
        return left_over

    def after_backward(self, left_over: dict[str, object]) -> dict[str, object]:
        """Store the versions of the gradients after a backward pass.

        Args:
            left_over: The result of `before_backward`.

        Returns:
            The entries of `left_over` for the optimizers whose model gradients the pass has changed.
        """
        reached = {}
        for number, pairs in self.copies.items():
            weights = [weight for weight, _ in pairs.live()]
            if str(number) in left_over and any(not is_unchanged(p, pairs.last_versions) for p in weights):
                reached[str(number)] = left_over[str(number)]
            pairs.last_versions = {id(p): (weakref.ref(p.grad), version(p.grad)) for p in weights if p.grad is not None}
        return reached


def evenly_spaced(tensor: Tensor, count: int = 32) -> Tensor:
    """Return at most `count` evenly spaced elements of a tensor."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // count)][:count]
