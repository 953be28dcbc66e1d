"""Everything that the trainer refuses, under one root.

A message says where, what was read, and what to try. What a caller would expect as a ValueError is one.
"""

from __future__ import annotations

__all__ = [
    "CallbackError",
    "DataError",
    "LabelError",
    "LogitsError",
    "ModelFileError",
    "OutputError",
    "PassConsumedError",
    "ProviderError",
    "SettingError",
    "ShapeError",
    "SmokeError",
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
    """A setting outside its domain, whoever gave it."""


class DataError(TrainerError, ValueError):
    """Text that can't be read, or is too short to learn from."""


class ModelFileError(TrainerError, ValueError):
    """A directory that holds no model of ours, or one that doesn't fit."""


class OutputError(TrainerError, OSError):
    """A place where results can't be written, or that holds something already."""


class CallbackError(TrainerError, TypeError):
    """A callback that isn't one, or that answered something else than an action."""


class SmokeError(TrainerError, RuntimeError):
    """A smoke run that can say nothing, because no step ran."""


class ProviderError(TrainerError, ValueError):
    """A teacher or student that broke its protocol."""


class PassConsumedError(TrainerError, RuntimeError):
    """A second gradient for a forward pass that already had its one."""
