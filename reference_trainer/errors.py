"""The errors that the trainer raises on purpose, under one root.

A message names the location, the value, and what to try. What a caller would expect as a `ValueError` is one.
"""

from __future__ import annotations

import difflib
from pathlib import Path

PACKAGES = {
    **dict.fromkeys(("numpy", "pydantic", "pydantic_core", "safetensors", "torch"), "trainer"),
    "matplotlib": "plot",
    "tensorboard": "tensorboard",
    **dict.fromkeys(("pyarrow", "transformers"), "hf"),
}
"""Packages that only an extra installs, with the extra."""


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


class CheckpointError(TrainerError, ValueError):
    """A checkpoint is missing, damaged, or of another run."""


class DriftError(CheckpointError, SettingError):
    """A run was saved with another setting, text, model or machine, so it cannot be resumed."""


class OutputError(TrainerError, OSError):
    """Results cannot be written to a path, or it holds other files already."""


class PackageError(TrainerError, ImportError):
    """A package of an extra is not installed."""


class CallbackError(TrainerError, TypeError):
    """An object is not a callback, or a callback returned something other than an action."""


class SmokeError(TrainerError, RuntimeError):
    """A smoke run ended before its first step, so it has no result."""


class CallbackNote(str):
    """A note on an exception that names the hook of a callback that raised it. Programs recognise it by its type."""


class RankError(TrainerError, RuntimeError):
    """Another process of the run failed, or differs from this one."""


class LostRankError(RankError):
    """Another process of the run left without a message: it was killed, or does not answer."""


class StopRequestedError(TrainerError, RuntimeError):
    """A run was asked to stop: it saved a checkpoint after its step, and ended without a result."""


class ProviderError(TrainerError, ValueError):
    """A teacher or student violated its protocol."""


class PassConsumedError(TrainerError, RuntimeError):
    """A forward pass was given a second gradient."""


def first_line(error: BaseException) -> str:
    """Return the first line of the message of a library's error, without what follows it; the type without a message.

    Libraries append stack frames, hints and jokes. Messages of this package are one line.
    """
    lines = (" ".join(line.split()) for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def missing_package(error: Exception) -> str | None:
    """Return how to install the package of an extra that `error` reports as missing; None for others."""
    if isinstance(error, ModuleNotFoundError) and error.name in PACKAGES:
        return f"{error.name} is not installed: pip install 'pv-contracts[{PACKAGES[error.name]}]'"
    return None


def similar_path(path: Path) -> str:
    """Return ` (did you mean 'PATH'?)` for a path that does not exist beside one that is spelt alike, else "".

    Compared is the outermost part of `path` that is missing, with the names beside it.
    """
    try:
        missing = next((part for part in reversed((path, *path.parents)) if not part.exists()), None)
        beside = [] if missing is None else [entry.name for entry in missing.parent.iterdir()]
    except OSError:  # of a directory that cannot be read, or a name that is too long
        return ""
    near = missing and difflib.get_close_matches(missing.name, beside, n=1)
    return f" (did you mean '{missing.with_name(near[0]) / path.relative_to(missing)}'?)" if missing and near else ""
