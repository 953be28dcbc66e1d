"""Distillation steps with a wrong result. `original` is the replaced function."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from falsifiers.support.faults import changed_student, scored_tokens


def loss_zero_where_nothing_is_scored(original: Any, *models: Any, **settings: Any) -> Any:
    """Report a loss of 0 where no token is scored."""
    result = original(*models, **settings)
    return replace(result, loss=result.loss or 0.0)


def metrics_of_nothing(original: Any, *models: Any, **settings: Any) -> Any:
    """Report metrics of 0 where no token is scored."""
    result = original(*models, **settings)
    return replace(result, metrics=result.metrics or {"kl_at_T": SimpleNamespace(sum=0.0, count=0)})


def tau_squared_in_the_metric(original: Any, *models: Any, temperature: float, **settings: Any) -> Any:
    """Report the metric `kl_at_T` with the factor τ²."""
    result = original(*models, temperature=temperature, **settings)
    metrics = {
        name: replace(metric, sum=metric.sum * temperature**2) if name == "kl_at_T" else metric
        for name, metric in result.metrics.items()
    }
    return replace(result, metrics=metrics)


def measured_after_the_gradient(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    """Report the result of the student after its update."""
    done = student.forward(batch)
    original(teacher, SimpleNamespace(vocab_size=student.vocab_size, forward=lambda batch: done), batch, **settings)
    after = SimpleNamespace(logits=done.logits, backward=lambda gradient: None)
    measured = SimpleNamespace(vocab_size=student.vocab_size, forward=lambda batch: after)
    return original(teacher, measured, batch, **settings)


def counted_in_half_precision(original: Any, *models: Any, **settings: Any) -> Any:
    """Report the scored tokens as a bfloat16 number: 889 becomes 888."""
    result = original(*models, **settings)
    return replace(result, count=int(torch.tensor(result.count, dtype=torch.bfloat16)))


def divided_by_a_half_precision_count(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    """Divide the gradient by the number of scored tokens as a bfloat16 number."""
    count = scored_tokens(batch)
    factor = count / torch.tensor(count, dtype=torch.bfloat16).item()

    def change(gradient: Tensor) -> Tensor:
        return gradient * factor

    return original(teacher, changed_student(student, change), batch, **settings)
