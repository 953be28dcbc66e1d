"""Jobs as a trainer can take them.

Some loops have one label for each example, some score every token, some leave out prompts at the start of a row alone,
some have rows of one length, some count steps alone or epochs alone, and some take a step on each batch.
"""

import math
from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from pv.suites.training_loop.job import IGNORED, Example, Job

LENGTH = 5
"""The tokens of a row, where all have as many."""
_OF_SEQUENCES = ("masks", "gaps", "lengths", "padding", "noise")
"""The features that a trainer lacks whose examples have one label each."""


def simplify(job: Job, lacks: Collection[str], ranks: int = 1) -> Job:
    """Return the job as a trainer takes it that lacks one of the features below.

    One without `accumulate` is given whole windows as batches, one without epochs the steps that they would take, and
    one without `max_steps` as many epochs as have so many steps.
    """
    if "accumulate" in lacks:
        job = replace(job, batch=job.batch * job.accumulate, accumulate=1)
    if "max_steps" in lacks and job.max_steps is not None:
        job = replace(job, epochs=-(-job.max_steps // (planned_steps(job, ranks) // job.epochs)), max_steps=None)
    if "warmup" in lacks:
        job = replace(job, warmup=0)
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
    if "sequences" in lacks:
        return Example(tokens[:2], (labels[0], tokens[1]))
    if "lengths" in lacks:
        tokens, labels = ((row[0], *islice(cycle(row[1:]), LENGTH - 1)) for row in (tokens, labels))
    given = 0 if "masks" in lacks else labels[1:].count(IGNORED)
    if lacks & {"masks", "gaps"}:
        labels = (labels[0], *(IGNORED,) * given, *tokens[1 + given :])
    return Example(tokens, labels)


def lacked(trainer: Any) -> dict[str, str]:
    """Return the features in `lacks` and `without` of a trainer, and those that `sequences` implies, with reasons."""
    named = dict.fromkeys(getattr(trainer, "without", ()), "its adapter names it in `without`") | {**trainer.lacks}
    if "sequences" not in named:
        return named
    return dict.fromkeys(_OF_SEQUENCES, f"an example has one label ({named['sequences']})") | named


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
