"""Assertions about the logits of a causal language model, which is passed as a function from rows to logits."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from pv.suites.bench import judge

TOLERANCE = 1e-4
"""Logits are equal up to this difference, relative to the largest logit: networks compute in float32."""

Row: TypeAlias = Sequence[int]
"""The token ids of one sequence."""
Logits: TypeAlias = Callable[[Sequence[Row]], Sequence[Tensor]]
"""Returns the logits [T, V] of every row in eval mode, computed in one batch."""


def sample_rows(tokens: Row) -> list[list[int]]:
    """Return three rows of 7, 3 and 5 tokens.

    Args:
        tokens: The tokens to choose from.
    """
    # A fixed formula instead of random numbers; it gives rows that differ.
    return [[tokens[(5 * i + 3 * k + i * k) % len(tokens)] for k in range(size)] for i, size in enumerate((7, 3, 5))]


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference of two tensors, relative to the largest expected element.

    The result is infinite if an element is not finite.
    """
    difference = float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    return difference if math.isfinite(difference) else math.inf


def difference_cause(difference: float, cause: str) -> str:
    """Return `cause` if a difference of logits is finite; otherwise the text that the logits are not finite.

    Args:
        difference: The difference, as `relative_difference` returns it.
        cause: The cause of a finite difference.
    """
    return cause if math.isfinite(difference) else "they are not finite, as after a softmax without unmasked positions"


def assert_no_later_token_is_seen(logits: Logits, tokens: Row) -> None:
    """Assert that the logits of a position do not depend on later tokens (causality).

    Args:
        logits: The model.
        tokens: The tokens to choose from.
    """
    row = sample_rows(tokens)[0]
    (before,) = logits([row])
    # Replace one token at a time, and compare the logits at all positions before the token.
    for k in range(1, len(row)):
        other = next(token for token in tokens if token != row[k])
        (after,) = logits([[*row[:k], other, *row[k + 1 :]]])
        changed = [i + 1 for i in range(k) if relative_difference(after[i], before[i]) > TOLERANCE]
        assert not changed, f"if token {k + 1} is replaced, the logits of the earlier positions {changed} change"


def assert_batch_changes_no_row(batched: Logits, alone: Logits, rows: Sequence[Row], cause: Callable[[], str]) -> None:
    """Assert that the logits of a row are the same in a batch of several rows and alone.

    Args:
        batched: Returns the logits of a batch.
        alone: Returns the logits of a batch of one row.
        rows: The rows of the batch.
        cause: Called on failure; returns the mistake that explains the logits.
    """
    for row, actual in zip(rows, batched(rows), strict=True):
        (expected,) = alone([row])
        difference = relative_difference(actual, expected)
        if difference >= TOLERANCE:  # also if a logit is not finite: then the difference is infinite
            fault = (
                f"in a batch with rows of up to {max(map(len, rows))} tokens, the logits of a row of {len(row)} tokens "
                f"differ by {difference:.2g} times the largest logit from the logits of the row alone"
            )
            judge(False, fault, f": {difference_cause(difference, cause())}")


def assert_seed_changes_nothing(logits: Logits, rows: Sequence[Row]) -> None:
    """Assert that logits in eval mode do not depend on the seed of the random generator."""
    torch.manual_seed(1)
    first = logits(rows)
    torch.manual_seed(2)
    second = logits(rows)
    is_equal = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert is_equal, "in eval mode, the logits of the same rows depend on the random seed: dropout is active"
