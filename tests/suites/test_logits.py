import math

import torch

from pv.suites.logits import off, why


def test_logits_that_are_not_finite_are_infinitely_far_off_and_explained() -> None:
    apart = off(torch.tensor([1.0, torch.nan]), torch.ones(2))
    assert apart == math.inf and "not finite" in why(apart, "padding is seen")
