from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("gradients")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


def test_a_gradient_that_is_clipped_late_is_named() -> None:
    assert "clipped after the step, or not at all" in refutation("never-clips", "TL-CLIP-001")


def test_clipping_of_a_scaled_gradient_is_named() -> None:
    assert "`unscale_` is called after the clipping" in refutation("clips-scaled-gradient", "TL-CLIP-003")


def test_parameters_that_are_not_clipped_are_named() -> None:
    assert "clipped, but for embed.weight" in refutation("clips-all-but-the-first", "TL-CLIP-001")


def test_a_divisor_that_counts_padding_is_named() -> None:
    assert "divided by all positions, padding included" in refutation("divides-by-all-tokens", "TL-GRAD-002")


def test_first_tokens_that_padding_predicts_are_named() -> None:
    found = refutation("pads-on-the-left", "TL-GRAD-005")
    assert "that with the first tokens scored, which padding on the left precedes" in found
