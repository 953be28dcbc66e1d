import pytest

from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("scaler")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        ("rate-of-skipped-step", "TL-SCALER-001", "a schedule that moves on with the skipped step"),
        ("gradient-stays-after-overflow", "TL-SCALER-001", "a gradient that is not cleared after the skipped step"),
        ("resume-without-scale", "TL-SCALER-002", "is 2 times that of the run that was not cut"),
    ],
)
def test_cause_is_named(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)
