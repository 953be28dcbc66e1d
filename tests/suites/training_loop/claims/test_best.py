import pytest

from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("best")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        ("greatest-is-best", "TL-BEST-001", "it is the greatest loss"),
        ("nan-is-best", "TL-BEST-002", "an evaluation with a NaN loss"),
        ("tie-is-best", "TL-BEST-003", "a tie replaces the best"),
        ("best-has-other-weights", "TL-BEST-005", "the weights of the best checkpoint have the loss"),
        ("resume-without-best", "TL-BEST-004", "the least loss before it is forgotten"),
    ],
)
def test_cause_is_named(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)
