import pytest

from pv.contract.claims import Falsifier
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("networks")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        (
            "sees-next-token",
            "TL-NETWORK-001",
            "token 2 is replaced, and the logits of the earlier positions [1] change",
        ),
        ("sees-padding", "TL-NETWORK-002", "padding is seen"),
        ("counts-padding", "TL-NETWORK-002", "positions count it"),
        ("dropout-in-eval-mode", "TL-NETWORK-003", "dropout is active"),
        ("trains-frozen-part", "TL-NETWORK-004", "position.weight is to be frozen"),
    ],
)
def test_cause_is_named(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)
