"""Distillation steps with a wrong result. `original` is the replaced function."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch


def loss_zero_where_nothing_is_scored(original: Any, *models: Any, **settings: Any) -> Any:
    """Report a loss of 0 where no token is scored."""
    result = original(*models, **settings)
    return replace(result, loss=result.loss or 0.0)


def metrics_of_nothing(original: Any, *models: Any, **settings: Any) -> Any:
    """Report metrics of 0 where no token is scored."""
    result = original(*models, **settings)
    return replace(result, metrics=result.metrics or {"kl_at_T": SimpleNamespace(sum=0.0, count=0)})


def counted_in_half_precision(original: Any, *models: Any, **settings: Any) -> Any:
    """Report the scored tokens as a bfloat16 number: 889 becomes 888."""
    result = original(*models, **settings)
    return replace(result, count=int(torch.tensor(result.count, dtype=torch.bfloat16)))
