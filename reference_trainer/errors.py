"""Everything that the trainer refuses, under one root.

A message says where, what was read, and what to try. What a caller would expect as a ValueError is one.
"""

from __future__ import annotations

__all__ = [
    "LabelError",
    "LogitsError",
    "PassConsumedError",
    "ProviderError",
    "SettingError",
    "ShapeError",
    "TrainerError",
    "VocabularyError",
]


class TrainerError(Exception):
    """Root of every error that this package raises on purpose."""


class ShapeError(TrainerError, ValueError):
    """Tensors whose shapes, dtypes or devices don't belong together."""


class VocabularyError(ShapeError):
    """Teacher and student score different numbers of tokens."""


class LabelError(TrainerError, ValueError):
    """A label that is neither a token of the vocabulary nor the ignored one."""


class LogitsError(TrainerError, ValueError):
    """A scored position whose logits are no distribution: NaN, +inf, or -inf throughout."""


class SettingError(TrainerError, ValueError):
    """A temperature or weight outside its domain."""


class ProviderError(TrainerError, ValueError):
    """A teacher or student that broke its protocol."""


class PassConsumedError(TrainerError, RuntimeError):
    """A second gradient for a forward pass that already had its one."""
