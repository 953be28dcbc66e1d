from collections.abc import Sequence
from unittest import SkipTest

import pytest
from torch import Tensor, nn

from pv.contract.claims import Falsifier
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.loop import Loop
from tests.suites.training_loop.planting import attack_of, by_id, claims, correct, refutation

Rows = Sequence[Sequence[int]]


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
        ("optimizer-holds-frozen", "TL-NETWORK-005", "position.weight is frozen, and the optimizer holds it"),
        ("bias-decays", "TL-NETWORK-006", "norm.weight has the weight decay 0.1"),
        ("parameters-in-a-set", "TL-NETWORK-007", "a saved state is loaded by position"),
        ("evaluation-trains-frozen-part", "TL-NETWORK-008", "position is in training mode"),
        ("frozen-part-cuts-the-graph", "TL-NETWORK-011", "embed.weight is trained and has no gradient"),
        ("recomputes-with-other-dropout", "TL-NETWORK-009", "other numbers are drawn"),
        ("loss-in-bfloat16", "TL-NETWORK-010", "the loss is computed in torch.bfloat16"),
    ],
)
def test_cause_is_named(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)


@pytest.mark.parametrize("claim", ["TL-NETWORK-009", "TL-NETWORK-010"])
def test_a_flag_without_an_effect_leaves_the_claim_undecided(claim: str) -> None:
    class Plain(Loop):
        def network_loss(self, network: nn.Module, rows: Rows, *, checkpointing: bool, autocast: bool) -> Tensor:
            return super().network_loss(network, rows, checkpointing=False, autocast=False)

    with pytest.raises(SkipTest, match=r"turn (checkpointing|autocast) on"):
        attack_of(by_id(claim))(bench=Bench(Plain()))
