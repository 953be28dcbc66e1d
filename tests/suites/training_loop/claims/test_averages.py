import pytest

from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("averages")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        ("average-before-step", "TL-AVERAGE-001", "so it is updated before the step"),
        ("average-never", "TL-AVERAGE-001", "the weights at the start: it is never updated"),
        ("resume-without-average", "TL-AVERAGE-002", "starts anew with the weights of the checkpoint"),
    ],
)
def test_cause_is_named(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)
