"""The cause that a failing claim names is the fault that was planted."""

from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pv.suites.training_loop import loop
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.gradients import falsify_equal_full_windows, falsify_padding_changes_nothing
from pv.suites.training_loop.job import IGNORED
from pv.suites.training_loop.probe import PAD, token_loss
from tests.suites.training_loop.planting import refutation


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        ("shifts-twice", "TL-GRAD-001", "it is that of labels shifted twice, up to a factor"),
        ("shifts-never", "TL-GRAD-001", "it is that of labels that are not shifted, up to a factor"),
        ("sum-of-means", "TL-GRAD-001", "the sum of the micro-batches' means, not divided by their number"),
        ("divides-twice", "TL-GRAD-001", "divided by the number of micro-batches twice"),
        ("gradient-kept", "TL-GRAD-001", "it is its own plus the gradient of the step before, which was not reset"),
        ("window-of-means", "TL-GRAD-002", "it is the mean of the micro-batches' means"),
        ("mean-over-examples", "TL-GRAD-002", "it is the mean of the examples' means"),
        (
            "planned-window",
            "TL-GRAD-003",
            "it is divided by the planned number of micro-batches, not by those of the window",
        ),
        ("partial-mean-of-means", "TL-GRAD-004", "it is the mean of the micro-batches' means"),
        ("first-label-counted", "TL-GRAD-005", "it is divided by all labels, also those that are not predicted"),
        ("padding-scored", "TL-PAD-001", "it is that with the padding scored"),
    ],
)
def test_cause_of_a_wrong_gradient(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)


def input_tokens(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids = batch["input_ids"]
    labels = ids[:, :-1].masked_fill(batch["labels"][:, 1:] == IGNORED, IGNORED)
    return cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def padding_of_shifted_labels(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    ids, real = batch["input_ids"].clone(), batch["attention_mask"]
    ids[range(len(ids)), real.sum(1) - 1] = PAD
    return token_loss(model(ids), batch["labels"].masked_fill(real == 0, PAD), "sum")


@pytest.mark.parametrize(
    ("loss", "claim", "cause"),
    [
        (input_tokens, falsify_equal_full_windows, "labels that are the input tokens, not the next ones"),
        (
            padding_of_shifted_labels,
            falsify_padding_changes_nothing,
            "the padding of labels shifted by the loop scored",
        ),
    ],
)
def test_cause_of_a_wrong_loss(loss: Any, claim: Any, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "loss_sum", loss)
    with pytest.raises(AssertionError, match=cause):
        claim(bench=Bench(loop.Loop()))
