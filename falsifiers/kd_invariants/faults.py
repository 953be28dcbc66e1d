"""Faulty losses that treat a token or an element specially.

`original` is the replaced function.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from falsifiers.kd_loss.faults import divergence, with_term


def logits_clamped(original: Any, student: Tensor, teacher: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss of logits clamped to ±10."""
    return original(student.clamp(-10, 10), teacher.clamp(-10, 10), *others, **settings)


def first_token_only(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Return the loss whose divergence has the term of token 0 only."""
    return with_term(original, *tensors, term=lambda log_p, log_q: divergence(log_p, log_q)[:, 0], **settings)


def last_element_only(original: Any, *tensors: Tensor, **settings: Any) -> Tensor:
    """Return the gradient of the last element of the batch, and zeros for the others."""
    gradient: Tensor = original(*tensors, **settings)
    gradient[:-1] = 0
    return gradient


def last_row_lost(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Leave out the last row of more than two, as a block that ends one row early does."""
    if tensors[2].shape[1] <= 2:
        return original(*tensors, **settings)
    return original(*(x[:, :-1] for x in tensors), **settings)
