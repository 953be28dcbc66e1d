"""Compute the metrics of an interval. Sums are kept with their counts and divided once, in this module.

`count_accepted` counts the tokens of a draft that a speculative decoder would accept, on a text under teacher forcing.
A draft begins at any scored position. A token of the draft is accepted if student and teacher have the same most
probable token (the first one, if several are equal); the draft ends at the first token that is not accepted (greedy
verification, Leviathan, Kalman, Matias 2023, arXiv:2211.17192). Predictions depend on the tokens of the text, not of
the draft. The counts therefore equal the counts of a decoder only on text that the teacher generated greedily.

Shape letters: B batch, T position, K depth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from reference_trainer.distillation.step import MetricSum


def accepted_name(depth: int) -> str:
    """Return the name of the metric of a depth: the share of accepted tokens among the tokens verified at this depth.

    Args:
        depth: The position in the draft, from 1.
    """
    return f"accepted_{depth}"


def count_accepted(
    agreed_BT: Tensor, scored_BT: Tensor, segments_BT: Tensor | None, depth: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Count trials and hits by depth: drafts whose token at this depth is verified, and drafts whose token is accepted.

    A draft of k tokens is a trial of depth k if all its positions are scored and in one document, and its first k - 1
    tokens agree; it is a hit if the last one agrees too. Unscored positions, such as a prompt, end a draft.
    Rows are counted independently, so counts of batches and ranks can be added.

    Args:
        agreed_BT: Whether student and teacher have the same most probable token, bool. As in `scored_BT`, the index is
            the position whose logits predict the token.
        scored_BT: Whether the predicted token is scored, bool.
        segments_BT: The document of each position, integers; None if each row is one document.
        depth: The largest number of tokens of a draft, K.

    Returns:
        Hits and trials by depth, from 1 to K: int64 scalars on the device of the arguments.
    """
    follows_BT = scored_BT.clone()
    if segments_BT is not None:
        follows_BT[:, 1:] &= segments_BT[:, 1:] == segments_BT[:, :-1]
    hits: list[Tensor] = []
    trials: list[Tensor] = []
    # `tried` marks the first positions of the drafts that are a trial of depth k + 1, for k from 0. A hit is a trial of
    # the next depth if the next position is scored and in the same document. Each iteration drops the last column,
    # which has no next position.
    tried = scored_BT
    for k in range(depth):
        hit = tried & agreed_BT[:, k:]
        trials.append(tried.sum())
        hits.append(hit.sum())
        tried = hit[:, :-1] & follows_BT[:, k + 1 :]
    return hits, trials


def accept_length(shares: Iterable[float]) -> float:
    """Return the mean number of accepted tokens of a draft: a_1 + a_1 a_2 + a_1 a_2 a_3 + ...

    The token that the teacher adds to every draft is not counted, so there is no + 1.

    Args:
        shares: a_k, the share of trials of depth k that are hits, by depth, over all tokens. The mean of the lengths
            of batches would be another number.
    """
    length, reached = 0.0, 1.0
    for share in shares:
        reached *= share
        length += reached
    return length


EVALUATED = "eval/"
"""Prefix of the names of metrics on held-back text."""
PERPLEXITY_CAP = 20.0
"""Cross-entropy in nats per token at which perplexities are capped: exp(20) is 4.9e8."""

_PERPLEXITIES = {"student_perplexity": "hard_loss", "teacher_perplexity": "teacher_loss"}


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return sum(sums) / sum(counts), in the unit of the sums; None if the counts add up to 0.

    The sum is rounded once, to float64, so the order of the pairs has no influence. NaN and infinities propagate; a sum
    beyond float64 is infinite.

    Args:
        pairs: Pairs (sum, count). A value that is not a mean over tokens is the pair (value, 1).
    """
    pairs = tuple(pairs)
    count = sum(count for _, count in pairs)
    return _sum([sum for sum, _ in pairs]) / count if count else None


def _sum(values: list[float]) -> float:
    """Return the sum, rounded once; infinity or NaN for a sum beyond float64 or inf - inf."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # do not end a run because of a metric
        return sum(values)


def perplexity(cross_entropy: MetricSum) -> float | None:
    """Return exp(min(mean, 20)), which is at least 1; None if the count is 0. NaN stays NaN.

    Args:
        cross_entropy: The sum over all tokens, in nats, and their number. Divide before the exponential: the mean of
            the perplexities of batches is larger (Jensen's inequality).
    """
    mean = weighted_mean([(cross_entropy.sum, cross_entropy.count)])
    # `min` returns its first argument unless the second is smaller, so NaN is not capped.
    return None if mean is None else math.exp(min(mean, PERPLEXITY_CAP))


def add(left: Mapping[str, MetricSum], right: Mapping[str, MetricSum]) -> dict[str, MetricSum]:
    """Add the sums and counts of two micro-batches, ranks or steps by name.

    Associative and commutative up to the rounding of the sums, with {} as identity.

    Args:
        left: Metrics by name.
        right: Metrics by name. A metric in only one of the two is returned unchanged.
    """
    return {**left, **{name: left[name] + total if name in left else total for name, total in right.items()}}


def complete_sums(sums: Mapping[str, MetricSum]) -> dict[str, MetricSum]:
    """Return the sums over the same tokens as the loss, and "gradient_norm", which is the norm of the last gradient.

    A sum covers fewer tokens if some step did not compute it: its weight was 0, or logging was off before the run was
    resumed.

    Args:
        sums: Metrics by name, with "loss".
    """
    tokens = sums["loss"].count
    return {name: total for name, total in sums.items() if total.count == tokens or name == "gradient_norm"}


def derive_metrics(sums: Mapping[str, MetricSum]) -> dict[str, float]:
    """Return the mean of each metric, the perplexities of student and teacher, and the length of accepted drafts.

    Losses, divergences and entropies are in nats per token. A metric with count 0 is left out, and so are the numbers
    that are derived from it:

    - `student_perplexity` from `hard_loss`, the student's cross-entropy without its weight;
    - `teacher_perplexity` from `teacher_loss`;
    - `accept_length` from `accepted_1`, `accepted_2`, ..., up to the first missing one.

    Args:
        sums: Metrics by name.
    """
    means = {name: weighted_mean([(metric.sum, metric.count)]) for name, metric in sums.items()}
    perplexities = {name: perplexity(sums[source]) for name, source in _PERPLEXITIES.items() if source in sums}
    shares = [*_shares(means)]
    values = {**means, **perplexities, "accept_length": accept_length(shares) if shares else None}
    return {name: value for name, value in values.items() if value is not None}


def _shares(means: Mapping[str, float | None]) -> Iterator[float]:
    """Yield `accepted_1`, `accepted_2`, ..., up to the first missing one."""
    for depth in itertools.count(1):
        share = means.get(accepted_name(depth))
        if share is None:
            return
        yield share


def rates(elapsed_s: float, **amounts: float) -> dict[str, float]:
    """Return the amounts per second, such as `steps_per_s` for `steps=10`; empty if no time has passed.

    Args:
        elapsed_s: The time in seconds.
        amounts: The amounts by name.
    """
    return {f"{name}_per_s": amount / elapsed_s for name, amount in amounts.items()} if elapsed_s > 0 else {}
