"""The optimizer steps of an observed run, and the cells of their table in reports."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pv.contract.wording import count


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStep:
    """One step of an optimizer; None for a value that is unknown or not finite.

    Attributes:
        rank: The rank of the process.
        optimizer: The number of the optimizer in its process.
        step: The number of the step of this optimizer.
        micro_batches: Number of backward passes whose gradients are summed.
        examples: Number of rows in the micro-batches.
        scored: Number of elements that enter the losses.
        loss: The mean of the losses over these elements.
        weight: The sum of the weights with which the elements enter the gradient.
        lowest_weight: The smallest weight of one element, without the factor of a loss scaler.
        highest_weight: The largest weight of one element.
        norm: The 2-norm of the gradient that was applied.
        rate: The largest learning rate of the parameter groups.
        limit: The limit of the last gradient clipping before the step.
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


COLUMNS = (
    "step",
    "micro-batches",
    "examples",
    "scored",
    "loss",
    "weight",
    "per element",
    "norm",
    "rate",
    "clipped at",
    "scale",
)


def groups(steps: Iterable[ObservedStep]) -> list[tuple[str, list[ObservedStep]]]:
    """Return titles and steps, grouped by optimizer and rank; the title of a single group is "Steps"."""
    rows_by_optimizer: dict[tuple[int, int], list[ObservedStep]] = {}
    for step in steps:
        rows_by_optimizer.setdefault((step.rank, step.optimizer), []).append(step)
    ranks = len({rank for rank, _ in rows_by_optimizer})
    if len(rows_by_optimizer) == 1:
        return [("Steps", rows) for rows in rows_by_optimizer.values()]
    return [
        (f"Steps of optimizer {number}{f' on rank {rank}' if ranks > 1 else ''}", rows)
        for (rank, number), rows in rows_by_optimizer.items()
    ]


def cells(step: ObservedStep) -> tuple[str, ...]:
    """Return the cells of one row of the table; "-" for an unknown value."""
    # Weights that differ by at most 0.5 % are shown as one number, so that rounding errors do not look like a range.
    low, high = step.lowest_weight, step.highest_weight
    if low is None or high is None:
        weights = "-"
    else:
        weights = f"{high:.3g}" if high - low <= 0.005 * abs(high) else f"{low:.3g}..{high:.3g}"
    return (
        str(step.step),
        str(step.micro_batches),
        _number(step.examples, ".0f"),
        _number(step.scored, ".0f"),
        _number(step.loss, ".4g"),
        _number(step.weight, ".4g"),
        weights,
        _number(step.norm, ".4g"),
        _number(step.rate, ".3g"),
        _number(step.limit, "g"),
        _number(step.scale, "g"),
    )


def _number(value: float | None, format_spec: str) -> str:
    return "-" if value is None else format(value, format_spec)


def remaining_steps(rows: Sequence[ObservedStep], shown: int) -> str:
    """Return a note with the number of steps that a table of `shown` rows omits; "" if it omits none."""
    return f"{count(len(rows) - shown, 'more step')}, which the JSON report lists" if len(rows) > shown else ""
