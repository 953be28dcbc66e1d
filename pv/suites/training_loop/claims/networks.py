"""Claims about the network that the trainer makes when the suite gives it none."""

from collections.abc import Sequence
from fnmatch import fnmatch
from typing import cast

from torch import Tensor

from pv.suites.logits import (
    Logits,
    Row,
    assert_no_later_token_is_seen,
    assert_nothing_is_drawn,
    assert_rows_are_as_alone,
    rows_of,
)
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.network import WithNetwork


def own(bench: Bench) -> WithNetwork:
    return cast("WithNetwork", bench.trainer)


def forward(bench: Bench) -> Logits:
    """Return the forward of a new network."""
    trainer = own(bench)
    network = trainer.network()

    def logits(rows: Sequence[Row]) -> Sequence[Tensor]:
        return trainer.logits(network, rows)

    return logits


def falsify_no_position_sees_later_tokens(bench: Bench) -> None:
    assert_no_later_token_is_seen(forward(bench), own(bench).tokens)


def falsify_padding_is_not_seen(bench: Bench) -> None:
    logits = forward(bench)
    cause = "padding is seen, or positions count it"
    assert_rows_are_as_alone(logits, logits, rows_of(own(bench).tokens), cause)


def falsify_eval_mode_draws_nothing(bench: Bench) -> None:
    assert_nothing_is_drawn(forward(bench), rows_of(own(bench).tokens))


def falsify_frozen_part_needs_no_gradient(bench: Bench) -> None:
    trainer = own(bench)
    named = dict(trainer.network().named_parameters())
    for pattern in trainer.frozen:
        found = [name for name in named if fnmatch(name, pattern)]
        assert found, f"no parameter is named {pattern!r}; there are {', '.join(named)}"
        trained = [name for name in found if named[name].requires_grad]
        assert not trained, f"{', '.join(trained)} is to be frozen, and has requires_grad True: it is trained"
