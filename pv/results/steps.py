"""The optimizer steps of an observed run, as reports show them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStep:
    """One step of an optimizer; None stands for what is not known, or is not finite.

    Attributes:
        rank: The rank of the process.
        optimizer: The number of the optimizer in its process.
        micro_batches: The backward passes that the gradient is made of.
        examples: The rows of the micro-batches.
        scored: The elements that the losses score.
        loss: The mean of the losses over these elements.
        weight: The sum of the weights of the elements in the gradient.
        lowest_weight: The least weight of one element, without the factor of a loss scaler.
        highest_weight: The largest weight of one element.
        norm: The 2-norm of the gradient that was applied.
        rate: The largest learning rate.
        limit: The limit of the last clipping.
        scale: The factor of the loss scaler.
    """

    rank: int
    optimizer: int
    step: int
    micro_batches: int
    examples: int | None
    scored: float | None
    loss: float | None
    weight: float | None
    lowest_weight: float | None
    highest_weight: float | None
    norm: float | None
    rate: float | None
    limit: float | None
    scale: float | None
