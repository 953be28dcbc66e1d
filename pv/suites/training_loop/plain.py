"""Examples as a trainer can take them: not every loop has labels that are not scored, or rows of unequal length."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import cycle, islice

from pv.suites.training_loop.job import Example, Job

LENGTH = 5
"""The tokens of a row, where all have as many."""


def taken(job: Job, lacks: Collection[str]) -> Job:
    """Return the job with its examples as a trainer without the features `masks` or `lengths` takes them."""
    rows = {name: tuple(_taken(each, lacks) for each in getattr(job, name)) for name in ("train", "evaluated")}
    return replace(job, train=rows["train"], evaluated=rows["evaluated"])


def _taken(example: Example, lacks: Collection[str]) -> Example:
    tokens, labels = example.tokens, example.labels
    if "masks" in lacks:
        labels = (labels[0], *tokens[1:])
    if "lengths" in lacks:
        tokens, labels = ((row[0], *islice(cycle(row[1:]), LENGTH - 1)) for row in (tokens, labels))
    return Example(tokens, labels)


def implied(lacks: Mapping[str, str]) -> dict[str, str]:
    """Return the missing features, with `unequal`, examples of unequal weight, if all have as many scored tokens."""
    equal = {"masks", "lengths"} <= set(lacks)
    return {**lacks, "unequal": f"every example has as many scored tokens ({lacks['lengths']})"} if equal else {**lacks}
