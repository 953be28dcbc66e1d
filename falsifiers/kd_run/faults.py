"""Faulty students. `original` is the replaced method."""

from __future__ import annotations

from typing import Any

import torch

from falsifiers.support.faults import changed_pass


def gradient_unseeded(original: Any, student: Any, batch: Any) -> Any:
    """Return a pass that scales its gradient by an unseeded random number."""
    return changed_pass(
        original(student, batch), lambda gradient: gradient * (1 + torch.Generator().seed() % 1009 * 1e-4)
    )
