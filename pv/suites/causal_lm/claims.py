"""Claims about every causal language model: what a position sees, padding, packing, the loss, saving, the cache."""

import io
import math
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pv.suites import logits as every
from pv.suites.causal_lm.bench import Bench
from pv.suites.logits import TOLERANCE, Row, off, why

LOST = 1e-3
"""Relative to the largest logit; buffers that a model in bfloat16 had rounded are exact after `from_pretrained`."""


def falsify_evaluation_draws_nothing(bench: Bench) -> None:
    every.assert_nothing_is_drawn(bench.logits, bench.rows)


def falsify_no_token_sees_the_future(bench: Bench) -> None:
    every.assert_no_later_token_is_seen(bench.logits, bench.tokens)


def falsify_other_rows_change_nothing(bench: Bench) -> None:
    cause = "rows are mixed, the mask is inverted, or something is normalised over the batch or over positions"
    every.assert_rows_are_as_alone(bench.logits, bench.logits, bench.rows, lambda: cause)


def falsify_masked_tokens_are_not_seen(bench: Bench) -> None:
    changed = bench.left_padded(bench.rows, pad=bench.tokens[-1])
    for before, after, row in zip(bench.left_padded(bench.rows), changed, bench.rows, strict=True):
        apart = off(after, before)
        assert apart < TOLERANCE, (
            f"other tokens where attention_mask is 0, on the left of a row of {len(row)}, change its logits by "
            f"{apart:.2g} of the largest: {why(apart, 'the mask is ignored, inverted, or that of another row')}"
        )


def falsify_left_padding(bench: Bench) -> None:
    cause = "positions count the padding on the left"
    every.assert_rows_are_as_alone(bench.left_padded, bench.logits, bench.rows, lambda: cause)


def falsify_packed_documents_are_isolated(bench: Bench) -> None:
    before = bench.packed(bench.rows)
    for k, row in enumerate(bench.rows):
        # Change one document at a time, and look at the logits of the others.
        after = bench.packed([*bench.rows[:k], _other_tokens(bench, row), *bench.rows[k + 1 :]])
        seen = [i + 1 for i in range(len(before)) if i != k and off(after[i], before[i]) > TOLERANCE]
        assert not seen, (
            f"other tokens in document {k + 1} of a packed row change the logits of the documents {seen}: other "
            "documents of the packed row are seen"
        )
    if "positions" in bench.lacks:
        # No position_ids can be given: the model computes positions from the documents, or they go on over the row.
        # If they go on, the later documents notice that the first one is shorter, although they do not see it.
        shorter = bench.packed([bench.rows[0][:-1], *bench.rows[1:]])
        if any(off(a, b) > TOLERANCE for a, b in zip(shorter[1:], before[1:], strict=True)):
            return
    cause = "other documents of the packed row are seen, or positions do not start again"
    every.assert_rows_are_as_alone(bench.packed, bench.logits, bench.rows, lambda: cause)


def _other_tokens(bench: Bench, row: Row) -> list[int]:
    """Return a row as long, each of whose tokens is another one."""
    places = {token: place for place, token in enumerate(bench.tokens)}
    return [bench.tokens[(places[token] + 1) % len(bench.tokens)] for token in row]


def falsify_labels_are_shifted_once(bench: Bench) -> None:
    bench.require("loss")
    tokens = torch.tensor([bench.rows[0], bench.rows[0][::-1]])
    logits, returned = bench.batch(tokens), bench.loss(tokens)
    assert returned is not None, "forward returns no loss for labels"
    loss = float(returned)
    unshifted, right, twice = (cross_entropy(logits, tokens, shift) for shift in range(3))
    mistakes = {
        "labels that are not shifted (if they are meant to be next tokens, say so in `not_claimed`)": unshifted,
        "labels that are shifted twice": twice,
        "a sum that is not divided": right * tokens[:, 1:].numel(),
    }
    causes = " or ".join(name for name, value in mistakes.items() if near(loss, value))
    assert near(loss, right), (
        f"with labels equal to the tokens [2, 7], the loss is {loss:.6f}; the mean over the {tokens[:, 1:].numel()} "
        f"next tokens is {right:.6f}" + (f"; it is that of {causes}" if causes else "")
    )


def cross_entropy(logits: Tensor, labels: Tensor, shift: int) -> float:
    """Return the mean over labels, each predicted `shift` positions before."""
    return float(F.cross_entropy(logits[:, : logits.shape[1] - shift].flatten(0, 1), labels[:, shift:].flatten()))


def near(value: float, right: float) -> bool:
    return math.isclose(value, right, rel_tol=TOLERANCE)


def falsify_loading_changes_nothing(bench: Bench) -> None:
    tokens = torch.tensor([bench.rows[0]])
    expected, tied = bench.batch(tokens), shared_parameters(bench.model)
    for loading, model in load_copies(bench):
        names = [" and ".join(sorted(group)) for group in tied - shared_parameters(model)]
        assert not names, f"after {loading}, {'; '.join(names)} are no longer one parameter: training moves them apart"
        apart = off(bench.batch(tokens, model), expected)
        assert apart < LOST, f"after {loading}, the logits differ by {apart:.2g} of the largest: a weight is not saved"


def load_copies(bench: Bench) -> Iterator[tuple[str, nn.Module]]:
    """Yield models that have the weights of the first, and how they were loaded."""
    file = io.BytesIO()
    torch.save(bench.model.state_dict(), file)
    file.seek(0)
    # Other initial weights: a weight that is not saved keeps them, and the logits differ.
    model: Any = bench.build(seed=1)
    model.load_state_dict(torch.load(file))
    yield "load_state_dict", model
    if hasattr(model, "save_pretrained") and hasattr(model, "from_pretrained"):
        with tempfile.TemporaryDirectory() as place, suppress(TypeError):  # a class that needs more than a folder
            model.save_pretrained(place)
            model = type(model).from_pretrained(place).eval()
            yield "from_pretrained", model


def shared_parameters(model: nn.Module) -> set[frozenset[str]]:
    """Return the sets of names that have one parameter."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


def falsify_cache_changes_nothing(bench: Bench) -> None:
    bench.require("cache")
    (expected,) = bench.logits(bench.rows[:1])
    actual = bench.cached(bench.rows[0], 3)
    wrong = [k + 1 for k in range(7) if not off(actual[k], expected[k]) < TOLERANCE]
    assert not wrong, (
        f"given 3 tokens and then one by one, tokens {wrong} of 7 have other logits with the cache than without: "
        "positions start again or are off by one, or the mask leaves out a part of the cache"
    )
