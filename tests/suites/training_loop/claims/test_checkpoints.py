from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct


@claims("checkpoints")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())
