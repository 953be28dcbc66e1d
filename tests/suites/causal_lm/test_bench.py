from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pv.errors import UsageError
from pv.suites.causal_lm.bench import Bench
from pv.suites.causal_lm.model import CausalLM
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from tests.suites.causal_lm.trying import tried


class Plain(CausalLM):
    """A forward of tokens and labels alone, which returns a tuple."""

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:  # type: ignore[override]
        output = super().forward(ids, labels=labels)
        return output.logits, output.loss


class BoolMask(CausalLM):
    """Learned positions that padding moves, and a mask that has to be bool."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Any:  # type: ignore[override]
        if attention_mask is not None and attention_mask.dtype is not torch.bool:
            raise ValueError("attention_mask must be bool")
        return super().forward(ids, attention_mask, torch.arange(ids.shape[1])).logits


class Broken(CausalLM):
    """A forward that does not take the labels of the suite."""

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:  # type: ignore[override]
        if labels is not None:
            raise ValueError("labels must be one-hot")
        return super().forward(ids)


class LastToken(CausalLM):
    def forward(self, ids: Tensor) -> Any:  # type: ignore[override]
        return super().forward(ids).logits[:, -1:]


def decoder() -> nn.Module:
    return new_decoder(DecoderConfig(vocab_size=40, layers=2, width=32, heads=4), seed=3)


@pytest.mark.parametrize(
    ("factory", "unclaimed"),
    [
        (lambda: CausalLM().bfloat16(), set()),
        (Plain, {"PAD-001", "PAD-002", "PACK-001", "CACHE-001"}),
        (BoolMask, {"PAD-002", "PACK-001", "LOSS-001", "CACHE-001"}),
        (Broken, {"PAD-001", "PAD-002", "PACK-001", "LOSS-001", "CACHE-001"}),
        (decoder, {"PAD-001", "PAD-002", "LOSS-001", "CACHE-001"}),
    ],
)
def test_correct_model_makes_the_claims_of_its_signature(factory: Any, unclaimed: set[str]) -> None:
    assert tried(factory) == ({}, unclaimed)


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (CausalLM(), "cannot be called without arguments"),
        (lambda width: CausalLM(), "cannot be called without arguments"),
        (lambda: 3, "the subject returned int"),
        (lambda: nn.Linear(3, 3), "the model cannot be called with tokens"),
        (LastToken, "expected logits [N, T, V] of all tokens"),
    ],
)
def test_subject_that_cannot_be_driven_is_told_what_to_write(subject: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Bench(subject)
    assert message in str(error.value)


def test_reason_of_the_user_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plain, "not_claimed", {"CLM-LOSS-001": "labels are next tokens"}, raising=False)
    monkeypatch.setattr(Plain, "lacks", {"mask": "no row is padded"}, raising=False)
    assert Bench(Plain).missing("CLM-LOSS-001", ("loss",)) == "labels are next tokens"
    assert Bench(Plain).missing("CLM-PAD-001", ("mask",)) == "no mask: no row is padded"
