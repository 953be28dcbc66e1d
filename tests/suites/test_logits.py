import math

import torch

from pv.suites.logits import off, rows_of, why


def test_logits_that_are_not_finite_are_infinitely_far_off_and_explained() -> None:
    apart = off(torch.tensor([1.0, torch.nan]), torch.ones(2))
    assert apart == math.inf and "not finite" in why(apart, "padding is seen")


def test_rows_have_different_lengths_and_tokens() -> None:
    rows = rows_of(range(3, 9))
    assert [len(row) for row in rows] == [7, 3, 5] and {len(set(row)) for row in rows} > {3}
