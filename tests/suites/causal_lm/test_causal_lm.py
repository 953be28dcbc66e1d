import importlib
from functools import cache
from typing import Any

import pytest
from torch import nn

from pv.contract.load import load_file
from pv.contract.model import Contract
from pv.contract.suites import suites
from pv.errors import UsageError
from pv.suites.causal_lm.bench import Bench
from pv.suites.causal_lm.model import CausalLM
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from tests.suites.causal_lm.models import BoolMask, Broken, LastToken, Plain, Written


@cache
def contract() -> Contract:
    found, problems = load_file(suites()["causal-lm"])
    assert found is not None, problems
    return found


def decoder() -> nn.Module:
    return new_decoder(DecoderConfig(vocab_size=40, layers=2, width=32, heads=4), seed=3)


def tried(factory: Any) -> tuple[dict[str, str], set[str]]:
    """Return the messages of the claims that fail, and the claims that are not made; premises are not looked at."""
    bench, failed, unclaimed = Bench(factory), {}, set()
    for claim in contract().falsifiers:
        assert claim.test is not None
        if bench.missing(claim.id, tuple(claim.options["needs"])):
            unclaimed.add(claim.id.removeprefix("CLM-"))
            continue
        try:
            getattr(importlib.import_module(claim.test.file.removesuffix(".py").replace("/", ".")), claim.test.name)(
                bench
            )
        except AssertionError as error:
            failed[claim.id.removeprefix("CLM-")] = str(error)
    return failed, unclaimed


@pytest.mark.parametrize(
    ("factory", "unclaimed"),
    [
        (CausalLM, set()),
        (Written, set()),
        (lambda: Written().bfloat16(), set()),
        (Plain, {"PAD-001", "PAD-002", "PACK-001", "CACHE-001"}),
        (BoolMask, {"PAD-002", "PACK-001", "LOSS-001", "CACHE-001"}),
        (Broken, {"PAD-001", "PAD-002", "PACK-001", "LOSS-001", "CACHE-001"}),
        (decoder, {"PAD-001", "PAD-002", "LOSS-001", "CACHE-001"}),
    ],
)
def test_correct_model_makes_the_claims_of_its_signature(factory: Any, unclaimed: set[str]) -> None:
    assert tried(factory) == ({}, unclaimed)


@pytest.mark.parametrize(
    ("fault", "claim", "cause"),
    [
        ({"dropped": True}, "EVAL-001", "dropout is active"),
        ({"diagonal": 1}, "CAUSAL-001", "token 2 is replaced, and the logits of the earlier positions [1] change"),
        ({"normed": True}, "BATCH-001", "rows are mixed, or something is normalised over the batch"),
        ({"masks": False}, "PAD-001", "the mask is ignored"),
        ({"counted": 1}, "PAD-002", "positions count the padding"),
        ({"isolates": False}, "PACK-001", "other documents of the packed row are seen"),
        ({"shift": 0}, "LOSS-001", "labels that are not shifted"),
        ({"shift": 2}, "LOSS-001", "labels that are shifted twice"),
        ({"unties": True}, "LOAD-001", "embed.weight and head.weight are no longer one parameter"),
        ({"cache_off": 1}, "CACHE-001", "off by one"),
        ({"cache_off": -1}, "CACHE-001", "tokens [4, 5, 6, 7] of 7"),
    ],
)
def test_cause_is_named(fault: dict[str, Any], claim: str, cause: str) -> None:
    assert cause in tried(type("Faulty", (Written,), fault))[0][claim]


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (Written(), "cannot be called without arguments"),
        (lambda width: Written(), "cannot be called without arguments"),
        (lambda: 3, "the subject returned int"),
        (lambda: nn.Linear(3, 3), "the model cannot be called with tokens"),
        (LastToken, "expected logits [N, T, V] of all tokens"),
    ],
)
def test_subject_that_cannot_be_driven_is_told_what_to_write(subject: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Bench(subject)
    assert message in str(error.value)


def test_reason_of_the_user_is_given() -> None:
    def make() -> nn.Module:
        return Written()

    make.not_claimed = {"CLM-LOSS-001": "labels are next tokens"}  # type: ignore[attr-defined]
    make.lacks = {"cache": "it is not used"}  # type: ignore[attr-defined]
    bench = Bench(make)
    assert bench.missing("CLM-LOSS-001", ("loss",)) == "labels are next tokens"
    assert bench.missing("CLM-CACHE-001", ("cache",)) == "no cache: it is not used"
