"""The one oracle of the suite: loss and gradient of the token mean, in float64, one example at a time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pv.suites.training_loop.job import Example, padded
from pv.suites.training_loop.probe import Probe, token_loss

START: Mapping[str, Tensor] = {name: each.detach().clone() for name, each in Probe(silent=True).named_parameters()}
"""The weights with which every run begins."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The loss in nats summed over the scored tokens, their number, and the gradient of the sum."""

    nats: float
    tokens: int
    gradient: Mapping[str, Tensor]


def sums(weights: Mapping[str, Tensor], examples: Iterable[Example], smoothing: float = 0.0) -> Sums:
    """Return the sums over examples at given weights, without dropout, padding or batches. smoothing: of the labels."""
    model, examples = Probe(silent=True, tied="head.weight" not in weights), list(examples)
    model.load_state_dict(dict(weights), strict=False)  # a tied weight has one name
    total = torch.zeros((), dtype=torch.float64)
    for each in examples:
        row = padded([each])
        total = total + token_loss(model(row["input_ids"]), row["labels"], "sum", smoothing)
    if total.requires_grad:
        total.backward()
    gradient = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}
    return Sums(float(total.detach()), sum(each.scored for each in examples), gradient)


def norm(gradient: Mapping[str, Tensor | None]) -> float:
    """Return the Euclidean norm over all parameters."""
    squares = [float((each**2).sum()) for each in gradient.values() if each is not None]
    return float(sum(squares) ** 0.5)
