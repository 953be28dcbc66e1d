"""The examples and jobs of the claims. Most values are constants, so that claims share the runs of equal jobs."""

from collections.abc import Callable
from dataclasses import replace
from typing import NotRequired, TypedDict

from hypothesis import strategies as st

from pv.suites.training_loop.job import IGNORED, Example, Job
from pv.suites.training_loop.probe import TEXT


def example(name: int, length: int, mask: int, *, first: bool = False) -> Example:
    """Return an example.

    Args:
        name: The name of the example, its first token.
        length: The number of tokens.
        mask: Token i + 1 is scored if bit i is set.
        first: Whether the first label is set, too; it is never scored.
    """
    low, high = TEXT
    tokens = (name, *(low + (7 * name + 5 * i + i * i) % (high - low) for i in range(1, length)))
    labels = (token if mask >> i & 1 else IGNORED for i, token in enumerate(tokens[1:]))
    return Example(tokens, (name if first else IGNORED, *labels))


def equal(n: int) -> tuple[Example, ...]:
    """Return n examples of 4 tokens, with 3 scored tokens each."""
    return tuple(example(name, 4, 0b111) for name in range(1, n + 1))


def unequal(n: int, start: int = 1) -> tuple[Example, ...]:
    """Return n examples of 2 to 8 tokens. The last token is scored; in longer examples, some earlier tokens are not."""
    lengths = [2 + (5 * i + 3) % 7 for i in range(n)]
    return tuple(_ending_scored(start + i, length, 0b1011011) for i, length in enumerate(lengths))


def _ending_scored(name: int, length: int, mask: int) -> Example:
    """Return an example that scores the last token and the tokens in `mask`, so that every row has a label."""
    # The mask has a bit for each token after the first: set the last bit, and cut the mask to the row.
    return example(name, length, (mask | 1 << (length - 2)) & (1 << (length - 1)) - 1)


EVALUATED = unequal(5, start=20)
DIVERGING = 4000.0
"""A learning rate so large that the evaluation loss is smallest after the first step, with the default seed."""


COMBINABLE: dict[str, Callable[[Job], Job]] = {
    "accumulate": lambda job: replace(job, accumulate=2),
    "schedule": lambda job: replace(job, schedule="linear", warmup=2),
    "optimizer": lambda job: replace(job, optimizer="adamw", rate=0.01),
    "clip": lambda job: replace(job, clip=0.5),  # every gradient has a larger norm
    "groups": lambda job: replace(job, groups=True),
    "scaler": lambda job: replace(job, scaler=True),
    "average": lambda job: replace(job, average=0.75),
    "smoothing": lambda job: replace(job, smoothing=0.2),
    "evaluate": lambda job: replace(job, evaluated=tuple(example(k, 4, 0b111) for k in range(20, 24)), eval_every=1),
}
"""The features that claims about combinations combine: the function that adds the feature to a job, by feature."""
EVALUATING = Job(train=unequal(6), evaluated=EVALUATED, eval_every=2, epochs=2, dropout=0.3)
"""A job with evaluations and dropout."""
SAVED = Job(train=unequal(7), epochs=2, optimizer="adamw", rate=0.01, schedule="linear", save_every=1, dropout=0.3)
"""A job with a checkpoint after every step, two epochs, an optimizer with state, a schedule and dropout."""


def unequal_examples(smallest: int) -> st.SearchStrategy[tuple[Example, ...]]:
    """Return a strategy for `smallest` to 7 examples of 2 to 7 tokens. Lengths and scored tokens are drawn."""
    rows = st.lists(st.tuples(st.integers(2, 7), st.integers(1, 63)), min_size=smallest, max_size=7)
    return rows.map(lambda drawn: tuple(_ending_scored(i, *row) for i, row in enumerate(drawn, 1)))


class Shape(TypedDict):
    """The arguments of a job that `shapes` draws. Some claims add `max_steps`."""

    train: tuple[Example, ...]
    batch: int
    accumulate: int
    epochs: int
    max_steps: NotRequired[int]


def shapes(smallest: int = 1) -> dict[str, st.SearchStrategy[object]]:
    """Return strategies for the settings that determine which examples each optimizer step of a job uses.

    Args:
        smallest: The smallest number of training examples.
    """
    small, few = st.integers(1, 3), st.integers(1, 2)
    return {"train": unequal_examples(smallest), "batch": small, "accumulate": small, "epochs": few}
