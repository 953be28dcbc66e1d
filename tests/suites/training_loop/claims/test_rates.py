from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("rates")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


def test_decay_of_a_bias_is_named() -> None:
    assert "head.bias has the weight decay 0.1, not 0.0" in refutation("bias-decays", "TL-DECAY-001")
