"""Faults that mutants of the contract `own-parts` put in place of functions of the trainer."""

from __future__ import annotations

from typing import Any


def nothing_checked(self: Any) -> None:
    """Check nothing before a run begins."""


def text_of_nothing(original: Any, *given: Any, **digests: Any) -> Any:
    """Return the manifest with the digest of a text that is not read."""
    return original(*given, **{"data_sha256": "", **digests})


def nothing_unused(settings: Any) -> list[str]:
    """Take every setting for one that has an effect."""
    return []
