"""The errors that the trainer raises on purpose, under one root.

A message names the location, the value, and what to try. What a caller would expect as a `ValueError` is one.
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
    "missing_package",
]

PACKAGES = ("numpy", "pydantic", "pydantic_core", "pydantic_settings", "safetensors", "torch")
"""Packages that only the extra `trainer` installs."""


class TrainerError(Exception):
    """The root of every error that this package raises on purpose."""


class ShapeError(TrainerError, ValueError):
    """Tensors have shapes, dtypes or devices that do not match."""


class VocabularyError(ShapeError):
    """Teacher and student have vocabularies of different sizes."""


class LabelError(TrainerError, ValueError):
    """A label is neither a token of the vocabulary nor the ignored index."""


class LogitsError(TrainerError, ValueError):
    """The logits of a scored position are not a distribution: NaN, +inf, or all -inf."""


class SettingError(TrainerError, ValueError):
    """A setting is unknown, outside its domain, or in conflict with another one."""


class DataError(TrainerError, ValueError):
    """A text cannot be read, or is too short to train on."""


class ModelFileError(TrainerError, ValueError):
    """A directory holds no model of this package, or one that does not fit."""


class OutputError(TrainerError, OSError):
    """Results cannot be written to a path, or it holds other files already."""


class CallbackError(TrainerError, TypeError):
    """An object is not a callback, or a callback returned something other than an action."""


class SmokeError(TrainerError, RuntimeError):
    """A smoke run ended before its first step, so it has no result."""


class ProviderError(TrainerError, ValueError):
    """A teacher or student violated its protocol."""


class PassConsumedError(TrainerError, RuntimeError):
    """A forward pass was given a second gradient."""


def missing_package(error: Exception) -> str | None:
    """Return how to install the package of the extra `trainer` that `error` reports as missing; None for others."""
    if isinstance(error, ModuleNotFoundError) and error.name in PACKAGES:
        return f"{error.name} is not installed: pip install 'pv-contracts[trainer]'"
    return None
