from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from pv.suites.causal_lm import model
from tests.suites.causal_lm.trying import tried


@pytest.mark.parametrize(
    ("name", "fault", "claim", "cause"),
    [
        ("dropped", lambda x, training: F.dropout(x, 0.1), "EVAL-001", "dropout is active"),
        (
            "causal",
            lambda queries, keys: torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries + 1),
            "CAUSAL-001",
            "token 2 is replaced, and the logits of the earlier positions [1] change",
        ),
        ("normed", lambda x: x / x.norm(), "BATCH-001", "or something is normalised over the batch"),
        ("real", lambda mask: mask[:1, None, :] > 0, "PAD-001", "that of another row"),
        ("real", lambda mask: mask[:, None, :] >= 0, "PAD-001", "the mask is ignored, inverted"),
        (
            "positions",
            lambda given, mask, past: torch.arange(past, mask.shape[1]),
            "PAD-002",
            "positions count the pad",
        ),
        ("same", lambda segments: segments[:, :, None] > 0, "PACK-001", "other documents of the packed row are seen"),
        ("token_loss", lambda y, t: F.cross_entropy(y.mT, t), "LOSS-001", "labels that are not shifted"),
        ("token_loss", lambda y, t: F.cross_entropy(y[:, :-2].mT, t[:, 2:]), "LOSS-001", "are shifted twice"),
        (
            "positions",
            lambda given, mask, past: (mask.cumsum(1) - int(not past)).long().clamp(min=0)[:, past:],
            "CACHE-001",
            "off by one",
        ),
    ],
)
def test_cause_is_named(
    name: str, fault: Callable[..., Any], claim: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, name, fault)
    assert cause in tried(model.CausalLM)[0][claim]
