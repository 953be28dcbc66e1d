"""Claims of the suite `causal-lm` on models that are right, and on wrong ones."""

import math
import re
from functools import wraps
from typing import Any
from unittest import SkipTest

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pv.errors import UsageError
from pv.instrument.swap import swap
from pv.suites.causal_lm import faults, model
from pv.suites.causal_lm.model import CausalLM
from pv.suites.causal_lm.suite import Bench
from pv.suites.logits import difference_cause, relative_difference
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from tests.suites.trying import trying_of

TRYING = trying_of("causal-lm")


class Plain(CausalLM):
    """A forward of tokens and labels alone, which returns a tuple."""

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:  # type: ignore[override]
        output = super().forward(ids, labels=labels)
        return output.logits, output.loss


class Items(CausalLM):
    """A forward that returns a dict."""

    @wraps(CausalLM.forward)
    def forward(self, *arguments: Any, **named: Any) -> Any:
        return vars(super().forward(*arguments, **named))


class BoolMask(CausalLM):
    """Learned positions that padding moves, and a mask that has to be bool."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Any:  # type: ignore[override]
        if attention_mask is not None and attention_mask.dtype is not torch.bool:
            raise ValueError("attention_mask must be bool")
        return super().forward(ids, attention_mask, torch.arange(ids.shape[1])).logits


def decoder() -> nn.Module:
    return new_decoder(DecoderConfig(vocab_size=40, layers=2, width=32, heads=4), seed=3)


@pytest.mark.parametrize(
    ("factory", "unclaimed"),
    [
        (lambda: CausalLM().bfloat16(), set()),
        (Items, set()),
        (Plain, {"PAD-001", "PAD-002", "PACK-001", "CACHE-001"}),
        (BoolMask, {"PAD-002", "PACK-001", "LOSS-001", "CACHE-001"}),
        (decoder, {"PAD-001", "PAD-002", "LOSS-001", "CACHE-001"}),
    ],
)
def test_correct_model_makes_the_claims_of_its_signature(factory: Any, unclaimed: set[str]) -> None:
    assert TRYING.wrong(factory) == {f"CLM-{claim}": "" for claim in unclaimed}


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (CausalLM(), "cannot be called without arguments"),
        (lambda: 3, "the subject returned int"),
        (lambda: nn.Linear(3, 3), "the model cannot be called with tokens"),
    ],
)
def test_subject_that_cannot_be_called_is_told_what_to_write(subject: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Bench(subject)


def sees_the_next(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries + 1)


class Counted(CausalLM):
    """Positions that are counted in each document, from `first`, without any that are given."""

    first = 0
    sees_others = False

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Any:  # type: ignore[override]
        row = torch.arange(ids.shape[1])
        if segments is None:
            return super().forward(ids, position_ids=row).logits
        starts = torch.where(segments[0].diff(prepend=segments[0][:1] - 1) != 0, row, 0).cummax(0).values
        seen = torch.zeros_like(segments) if self.sees_others else segments
        return super().forward(ids, position_ids=(row - starts + self.first)[None], segments=seen).logits


class Going(CausalLM):
    """Positions that go on over a row of several documents."""

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Any:  # type: ignore[override]
        return super().forward(ids, position_ids=torch.arange(ids.shape[1]), segments=segments).logits


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (Counted, None),
        (Going, None),
        (type("Leaky", (Counted,), {"sees_others": True}), r"other tokens in document 1 .* of the documents \[2, 3\]"),
        (type("FromOne", (Counted,), {"first": 1}), "or positions do not start again"),
    ],
)
def test_documents_are_tried_where_positions_cannot_be_given(kind: Any, fault: str | None) -> None:
    assert "positions" in Bench(kind).lacks
    message = TRYING.wrong(kind).get("CLM-PACK-001")
    assert message is None if fault is None else re.search(fault, str(message))


class Raising(CausalLM):
    def forward(  # type: ignore[override]
        self, ids: Tensor, labels: Tensor | None = None, cache: Any = None, use_cache: bool = False
    ) -> Any:
        if labels is not None or use_cache:
            raise ValueError("not yet")
        return super().forward(ids).logits


@pytest.mark.parametrize(("claim", "argument"), [("CLM-LOSS-001", "labels"), ("CLM-CACHE-001", "past_key_values")])
def test_forward_that_raises_for_an_argument_leaves_its_claim_undecided(claim: str, argument: str) -> None:
    bench = Bench(Raising)
    assert not bench.missing(claim, TRYING.needs[claim])
    with pytest.raises(SkipTest, match=rf"with {argument}.*, forward raises ValueError: not yet; .*`make\.features"):
        TRYING.tests[claim](bench=bench)


def late_in_the_cache(attention: Any, mask: Tensor, past: int) -> Tensor:
    return (mask.cumsum(1) - int(not past)).long().clamp(min=0)[:, past:]


@pytest.mark.parametrize(
    ("name", "fault", "claim", "cause"),
    [
        ("dropout", lambda x, training: F.dropout(x, 0.1), "CLM-EVAL-001", "dropout is active"),
        ("causal", sees_the_next, "CLM-CAUSAL-001", "if token 2 is replaced, the logits of the earlier positions [1]"),
        ("normalize", lambda x: x / x.norm(), "CLM-BATCH-001", "or something is normalised over the batch"),
        ("key_mask", lambda mask: mask[:1, None, :] > 0, "CLM-PAD-001", "taken from another row"),
        ("positions", lambda _, mask, old: torch.arange(old, mask.shape[1]), "CLM-PAD-002", "positions count the pad"),
        (
            "same_document",
            lambda segments: segments[:, :, None] > 0,
            "CLM-PACK-001",
            "documents of the packed row are seen",
        ),
        ("token_loss", lambda y, t: F.cross_entropy(y.mT, t), "CLM-LOSS-001", "labels that are not shifted"),
        (
            "positions",
            late_in_the_cache,
            "CLM-CACHE-001",
            "one token at a time, tokens [4, 5, 6, 7] of 7 have other logits",
        ),
    ],
)
def test_cause_is_named(name: str, fault: Any, claim: str, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, name, fault)
    assert cause in TRYING.wrong(model.CausalLM)[claim]


def test_weights_that_are_untied_by_a_load_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.CausalLM, "load_state_dict", model.CausalLM.load_state_dict)  # restored afterwards
    swap(model, "CausalLM.load_state_dict", faults.untied)
    messages = TRYING.wrong(model.CausalLM)
    assert messages.keys() == {"CLM-LOAD-001"}
    assert "embed.weight and head.weight are no longer one parameter" in messages["CLM-LOAD-001"]


def test_random_buffer_that_is_not_saved_is_found() -> None:
    def unsaved() -> nn.Module:
        offset, network = torch.randn(model.VOCABULARY), CausalLM()
        network.head.register_forward_hook(lambda head, inputs, logits: logits + offset)
        return network

    assert "a weight is not saved" in TRYING.wrong(unsaved).get("CLM-LOAD-001", "it holds")


def test_logits_that_are_not_finite_are_infinitely_far_off_and_explained() -> None:
    apart = relative_difference(torch.tensor([1.0, torch.nan]), torch.ones(2))
    assert apart == math.inf and "not finite" in difference_cause(apart, "padding is seen")
