from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("logs")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


def test_tokens_that_are_not_set_back_are_named() -> None:
    assert "/ the tokens of the whole run" in refutation("log-keeps-its-tokens", "TL-LOG-003")
