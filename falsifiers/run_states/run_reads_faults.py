"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHARED: list[Any] = []
"""Contexts that `contexts_share_their_losses` has completed."""


def contexts_share_their_losses(original: Any, self: Any, values: Mapping[str, Any]) -> None:
    """Give contexts of earlier steps the losses of later ones."""
    original(self, values)
    if "loss" in values:
        for earlier in SHARED:
            original(earlier, values)
        SHARED.append(self)
