"""Claims about the network that the trainer makes when the suite gives it none."""

from collections.abc import Sequence
from fnmatch import fnmatch
from typing import cast

import torch
from torch import Tensor

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.network import WithNetwork

TOLERANCE = 1e-4
"""Relative to the largest logit; networks compute in float32."""


def own(bench: Bench) -> WithNetwork:
    return cast("WithNetwork", bench.trainer)


def rows_of(tokens: Sequence[int]) -> list[list[int]]:
    """Return three rows of different lengths."""
    return [[tokens[(5 * i + 3 * k + i * k) % len(tokens)] for k in range(size)] for i, size in enumerate((7, 3, 5))]


def off(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, relative to the largest logit."""
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-12))


def falsify_no_position_sees_later_tokens(bench: Bench) -> None:
    trainer = own(bench)
    network, (row, *_) = trainer.network(), rows_of(trainer.tokens)
    (before,) = trainer.logits(network, [row])
    for k in range(1, len(row)):
        other = next(token for token in trainer.tokens if token != row[k])
        (after,) = trainer.logits(network, [[*row[:k], other, *row[k + 1 :]]])
        seen = [i for i in range(k) if off(after[i], before[i]) > TOLERANCE]
        assert not seen, f"token {k + 1} is replaced, and the logits of the earlier positions {_from_one(seen)} change"


def _from_one(positions: Sequence[int]) -> list[int]:
    return [each + 1 for each in positions]


def falsify_padding_is_not_seen(bench: Bench) -> None:
    trainer = own(bench)
    network, rows = trainer.network(), rows_of(trainer.tokens)
    together = trainer.logits(network, rows)
    for row, found in zip(rows, together, strict=True):
        (alone,) = trainer.logits(network, [row])
        apart = off(found, alone)
        assert apart < TOLERANCE, (
            f"beside rows of up to {max(map(len, rows))} tokens, a row of {len(row)} has logits off by {apart:.2g} of "
            "the largest from those that it has alone: padding is seen, or positions count it"
        )


def falsify_eval_mode_draws_nothing(bench: Bench) -> None:
    trainer = own(bench)
    network, rows = trainer.network(), rows_of(trainer.tokens)
    torch.manual_seed(1)
    first = trainer.logits(network, rows)
    torch.manual_seed(2)
    again = trainer.logits(network, rows)
    same = all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert same, "in eval mode, the same rows have other logits with another seed: dropout is active"


def falsify_frozen_part_needs_no_gradient(bench: Bench) -> None:
    trainer = own(bench)
    named = dict(trainer.network().named_parameters())
    for pattern in trainer.frozen:
        found = [name for name in named if fnmatch(name, pattern)]
        assert found, f"no parameter is named {pattern!r}; there are {', '.join(named)}"
        trained = [name for name in found if named[name].requires_grad]
        assert not trained, f"{', '.join(trained)} is to be frozen, and has requires_grad True: it is trained"
