"""Examples as a trainer can take them.

Some loops score every token, some leave out prompts at the start of a row alone, some have rows of one length.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from pv.suites.training_loop.job import IGNORED, Example, Job

LENGTH = 5
"""The tokens of a row, where all have as many."""


def simplify(job: Job, lacks: Collection[str]) -> Job:
    """Return the job as a trainer without `masks`, `gaps`, `lengths` or `log_every` takes it."""
    rows = {
        name: tuple(_simplify_example(each, set(lacks)) for each in getattr(job, name))
        for name in ("train", "evaluated")
    }
    every = 1 if "log_every" in lacks else job.log_every
    return replace(job, train=rows["train"], evaluated=rows["evaluated"], log_every=every)


def _simplify_example(example: Example, lacks: Set[str]) -> Example:
    tokens, labels = example.tokens, example.labels
    if "lengths" in lacks:
        tokens, labels = ((row[0], *islice(cycle(row[1:]), LENGTH - 1)) for row in (tokens, labels))
    given = 0 if "masks" in lacks else labels[1:].count(IGNORED)
    if lacks & {"masks", "gaps"}:
        labels = (labels[0], *(IGNORED,) * given, *tokens[1 + given :])
    return Example(tokens, labels)


def lacked(trainer: Any) -> dict[str, str]:
    """Return the features in `lacks` of a trainer, with the reasons, and those in its `without`, if it has that."""
    return dict.fromkeys(getattr(trainer, "without", ()), "its adapter names it in `without`") | {**trainer.lacks}


def implied(lacks: Mapping[str, str]) -> dict[str, str]:
    """Return the missing features, with `unequal`, examples of unequal weight, if all have as many scored tokens."""
    equal = {"masks", "lengths"} <= set(lacks)
    return {**lacks, "unequal": f"every example has as many scored tokens ({lacks['lengths']})"} if equal else {**lacks}
