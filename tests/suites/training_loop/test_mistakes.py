"""The cause that a failing claim names is the fault that was planted."""

import pytest

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
