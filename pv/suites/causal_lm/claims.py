"""What holds for every causal language model."""

import inspect
import io
import math
import tempfile
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pv.suites import logits as every
from pv.suites.causal_lm.bench import Bench, part
from pv.suites.logits import TOLERANCE, off

LOST = 1e-3
"""Relative to the largest logit; buffers that a model in bfloat16 had rounded are exact after `from_pretrained`."""


def falsify_evaluation_draws_nothing(bench: Bench) -> None:
    every.assert_nothing_is_drawn(bench.logits, bench.rows)


def falsify_no_token_sees_the_future(bench: Bench) -> None:
    every.assert_no_later_token_is_seen(bench.logits, bench.tokens)


def falsify_other_rows_change_nothing(bench: Bench) -> None:
    cause = "rows are mixed, or something is normalised over the batch or over positions"
    every.assert_rows_are_as_alone(bench.logits, bench.logits, bench.rows, cause)


def falsify_masked_tokens_are_not_seen(bench: Bench) -> None:
    pairs = zip(bench.left(bench.rows), bench.left(bench.rows, bench.tokens[-1]), bench.rows, strict=True)
    for before, after, row in pairs:
        apart = off(after, before)
        assert apart < TOLERANCE, (
            f"other tokens where attention_mask is 0, on the left of a row of {len(row)}, change its logits by "
            f"{apart:.2g} of the largest: the mask is ignored, inverted, or that of another row"
        )


def falsify_left_padding(bench: Bench) -> None:
    cause = "positions count the padding on the left"
    every.assert_rows_are_as_alone(bench.left, bench.logits, bench.rows, cause)


def falsify_packed_documents_are_isolated(bench: Bench) -> None:
    cause = "other documents of the packed row are seen, or positions do not start again"
    every.assert_rows_are_as_alone(bench.packed, bench.logits, bench.rows, cause)


def falsify_labels_are_shifted_once(bench: Bench) -> None:
    judge_loss(bench, (7, 7, 7))


def falsify_ignored_labels_are_not_counted(bench: Bench) -> None:
    for lengths in ((3, 7, 5), (0, 4, 2)):
        judge_loss(bench, lengths)


def judge_loss(bench: Bench, lengths: tuple[int, ...]) -> None:
    """Compare the loss of the model with that of its own logits; so many labels of each row are not ignored."""
    tokens = torch.tensor([bench.rows[0], bench.rows[0][::-1], bench.tokens[:1] * 7])
    labels = tokens.where(torch.arange(7) < torch.tensor(lengths)[:, None], -100)
    logits, scored = bench.batch(tokens), labels[:, 1:] != -100
    loss = float(part(bench.call(tokens, labels=labels), "loss", 0))  # type: ignore[arg-type]
    right = cross_entropy(logits, labels, 1)
    rows = [cross_entropy(logits[k : k + 1], labels[k : k + 1], 1) for k in range(3) if scored[k].any()]
    known = {
        "labels that are not shifted (if they are meant to be next tokens, say so in `not_claimed`)": (
            cross_entropy(logits, labels, 0)
        ),
        "labels that are shifted twice": cross_entropy(logits, labels, 2),
        "a sum that is not divided": right * int(scored.sum()),
        "a mean that counts ignored labels": right * float(scored.double().mean()),
        "a mean of the means of rows": sum(rows) / len(rows),
    }
    causes = " or ".join(name for name, value in known.items() if near(loss, value))
    assert near(loss, right), (
        f"with {int((labels == -100).sum())} of {labels.numel()} labels ignored, the loss is {loss:.6f}; the mean over "
        f"the {int(scored.sum())} next tokens is {right:.6f}" + (f"; it is {causes}" if causes else "")
    )


def cross_entropy(logits: Tensor, labels: Tensor, shift: int) -> float:
    """Return the mean over labels, each predicted `shift` positions before."""
    return float(F.cross_entropy(logits[:, : logits.shape[1] - shift].flatten(0, 1), labels[:, shift:].flatten()))


def near(value: float, right: float) -> bool:
    return math.isclose(value, right, rel_tol=TOLERANCE)


def falsify_loading_changes_nothing(bench: Bench) -> None:
    tokens = torch.tensor([bench.rows[0]])
    wanted, tied = bench.batch(tokens), shared(bench.model)
    for how, model in loaded(bench):
        names = [" and ".join(sorted(group)) for group in tied - shared(model)]
        assert not names, f"after {how}, {'; '.join(names)} are no longer one parameter: training moves them apart"
        apart = off(bench.batch(tokens, model), wanted)
        assert apart < LOST, f"after {how}, the logits differ by {apart:.2g} of the largest: a weight is not saved"


def loaded(bench: Bench) -> Iterator[tuple[str, nn.Module]]:
    """Yield models that have the weights of the first, and how they were loaded."""
    file = io.BytesIO()
    torch.save(bench.model.state_dict(), file)
    file.seek(0)
    model = bench.build()
    model.load_state_dict(torch.load(file))
    yield "load_state_dict", model
    load = getattr(type(bench.model), "from_pretrained", None)
    if load is not None and hasattr(bench.model, "save_pretrained") and takes_a_folder(load):
        with tempfile.TemporaryDirectory() as place:
            bench.model.save_pretrained(place)
            yield "from_pretrained", load(place).eval()


def takes_a_folder(load: object) -> bool:
    """Return whether a function needs a folder alone: that of an adapter (PEFT) needs its base model, too."""
    parameters = inspect.signature(load).parameters.values()  # type: ignore[arg-type]
    named = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return sum(each.default is each.empty for each in named) == 1


def shared(model: nn.Module) -> set[frozenset[str]]:
    """Return the sets of names that have one parameter."""
    names: dict[int, set[str]] = {}
    for name, each in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(each), set()).add(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


def falsify_cache_changes_nothing(bench: Bench) -> None:
    (wanted,) = bench.logits(bench.rows[:1])
    found = bench.cached(bench.rows[0], 3)
    wrong = [k + 1 for k in range(7) if not off(found[k], wanted[k]) < TOLERANCE]
    assert not wrong, (
        f"given 3 tokens and then one by one, tokens {wrong} of 7 have other logits with the cache than without: "
        "positions start again or are off by one, or the mask leaves out a part of the cache"
    )
