"""Jobs as a trainer can take them.

Some loops score every token, some leave out prompts at the start of a row alone, some have rows of one length, and some
count steps alone.
"""

import math
from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from pv.suites.training_loop.job import IGNORED, Example, Job

LENGTH = 5
"""The tokens of a row, where all have as many."""


def simplify(job: Job, lacks: Collection[str], ranks: int = 1) -> Job:
    """Return the job as a trainer without `masks`, `gaps`, `lengths`, `log_every`, `eval_batch` or `epochs` takes it.

    One without epochs is given the steps that they would take.
    """
    rows = {
        name: tuple(_simplify_example(each, set(lacks)) for each in getattr(job, name))
        for name in ("train", "evaluated")
    }
    every = 1 if "log_every" in lacks else job.log_every
    evaluated = job.batch if "eval_batch" in lacks else job.eval_batch
    steps = job.max_steps or (planned_steps(job, ranks) if "epochs" in lacks else None)
    return replace(
        job, train=rows["train"], evaluated=rows["evaluated"], log_every=every, max_steps=steps, eval_batch=evaluated
    )


def planned_steps(job: Job, ranks: int = 1) -> int:
    """Return how many steps its epochs take in so many processes, where the last window of an epoch may be shorter."""
    return job.epochs * math.ceil(len(job.train) / (job.batch * job.accumulate * ranks))


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
    """Return the missing features and those that are missing with them.

    `unequal`, examples of unequal weight, if all have as many scored tokens; `short_windows` where there are no epochs.
    """
    others = {}
    if {"masks", "lengths"} <= set(lacks):
        others["unequal"] = f"every example has as many scored tokens ({lacks['lengths']})"
    if "epochs" in lacks:
        others["short_windows"] = f"there are no epochs ({lacks['epochs']})"
    return {**others, **lacks}
