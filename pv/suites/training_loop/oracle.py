"""The oracle of the suite: loss and gradient of the token mean, in float64, computed one example at a time.

A single example needs no padding, mask or batching, so the oracle shares none of the code that is often wrong in loops.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pv.equations.causes import difference
from pv.suites.training_loop.job import Example, padded
from pv.suites.training_loop.probe import Probe, token_loss

START: Mapping[str, Tensor] = {
    name: parameter.detach().clone() for name, parameter in Probe(silent=True).named_parameters()
}
"""The initial weights of every run."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum of the losses of the scored tokens in nats, the number of scored tokens, and the gradient of the sum."""

    nats: float
    tokens: int
    gradient: Mapping[str, Tensor]

    @property
    def mean(self) -> dict[str, Tensor]:
        """Return the gradient of the token mean; without tokens, the gradient of the sum."""
        return scaled(self.gradient, 1 / max(self.tokens, 1))


def scaled(gradient: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """Return a gradient with every element multiplied by a factor."""
    return {name: tensor * factor for name, tensor in gradient.items()}


def sums(
    weights: Mapping[str, Tensor],
    examples: Iterable[Example],
    smoothing: float = 0.0,
    dtype: torch.dtype = torch.float64,
    loss_factor: float = 1.0,
) -> Sums:
    """Return the summed loss and its gradient at `weights`, without dropout, padding or batches.

    Args:
        weights: The parameters of the probe by name.
        examples: The examples, each with tokens and labels.
        smoothing: The label smoothing.
        dtype: The dtype of the logits and of the loss.
        loss_factor: The factor by which the loss is multiplied before the backward pass.

    Returns:
        The summed loss in nats, the number of scored tokens, and the gradient of the summed loss times `loss_factor`.
    """
    model, examples = Probe(silent=True, tied="head.weight" not in weights), list(examples)
    model.load_state_dict(dict(weights), strict=False)  # of tied weights, only one is a parameter
    total = torch.zeros((), dtype=dtype)
    for example in examples:
        row = padded([example])
        total = total + token_loss(model(row["input_ids"]).to(dtype), row["labels"], "sum", smoothing)
    if total.requires_grad:
        (total * loss_factor).backward()
    gradient = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}
    return Sums(float(total.detach()), sum(example.scored for example in examples), gradient)


def hidden_gradient(weights: Mapping[str, Tensor], examples: Iterable[Example]) -> float:
    """Return the largest absolute element of the gradient of the summed loss with respect to the hidden states."""
    model, largest = Probe(silent=True, tied="head.weight" not in weights), 0.0
    model.load_state_dict(dict(weights), strict=False)
    for example in examples:
        row = padded([example])
        hidden = model.hidden(row["input_ids"]).detach().requires_grad_()
        token_loss(model.head(hidden), row["labels"], "sum").backward()
        largest = max(largest, float(hidden.grad.abs().max()) if hidden.grad is not None else 0.0)
    return largest


def norm(gradient: Mapping[str, Tensor | None]) -> float:
    """Return the Euclidean norm of a gradient over all parameters; None counts as zero."""
    squares = [float((tensor**2).sum()) for tensor in gradient.values() if tensor is not None]
    return float(sum(squares) ** 0.5)


CLOSE = 1e-6
"""Tolerance within which two numbers count as equal; see `close`."""


def close(actual: float, expected: float, tolerance: float = CLOSE) -> bool:
    """Return whether two numbers differ by at most a relative or absolute tolerance. NaN equals no number."""
    return math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance)


def matching_numbers(actual: float, values: Mapping[str, float], tolerance: float) -> tuple[str, ...]:
    """Return the names of those `values` that are close to `actual`, such as the results of known mistakes."""
    return tuple(name for name, value in values.items() if close(actual, value, tolerance))


def matching_arrays(
    actual: Mapping[str, Tensor | None], values: Mapping[str, Mapping[str, Tensor]], tolerance: float
) -> tuple[str, ...]:
    """Return the names of those `values` (gradients or other arrays by name) that are close to `actual`."""
    return tuple(name for name, value in values.items() if difference(actual, value) < tolerance)


def token_mean(parts: Sequence[Sums]) -> float:
    """Return the mean loss per scored token in nats, over all `parts`; 0 if there are no scored tokens."""
    return sum(part.nats for part in parts) / max(sum(part.tokens for part in parts), 1)


Weights = Mapping[str, Tensor]
"""Parameters by name."""
Decays = Callable[[int], float]
"""Returns the decay of an update (the factor of the old average) from the number of earlier updates."""


def running_average(start: Weights, later: Sequence[Weights], decay: Decays, done: int = 0) -> Weights:
    """Return the running average of weights: after each step, mean = d * mean + (1 - d) * weights.

    Args:
        start: The average before the first update.
        later: The weights after each step.
        decay: Returns d, which may depend on the number of earlier updates.
        done: The number of updates before `start`.
    """
    mean = start
    for k, weights in enumerate(later, done):
        mean = {name: decay(k) * tensor + (1 - decay(k)) * weights[name] for name, tensor in mean.items()}
    return mean
