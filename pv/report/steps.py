"""The table of the steps of an observed run, which text, Markdown and HTML share."""

from collections.abc import Iterable, Sequence

from pv.contract.wording import count
from pv.results.steps import ObservedStep

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
    """Return the steps of every optimizer, with a title where there are several."""
    found: dict[tuple[int, int], list[ObservedStep]] = {}
    for step in steps:
        found.setdefault((step.rank, step.optimizer), []).append(step)
    ranks = len({rank for rank, _ in found})
    return [
        (f"Steps of optimizer {number}{f' on rank {rank}' if ranks > 1 else ''}" if len(found) > 1 else "Steps", rows)
        for (rank, number), rows in found.items()
    ]


def cells(step: ObservedStep) -> tuple[str, ...]:
    """Return a row of the table; "-" for what is not known."""
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


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def more(rows: Sequence[ObservedStep], shown: int) -> str:
    """Return a remark on the rows that a table leaves out; "" if there are none."""
    return f"{count(len(rows) - shown, 'more step')}, which the JSON report lists" if len(rows) > shown else ""
