"""The errors that the trainer raises on purpose, with the base class `TrainerError`.

A message names the location, the value, and what to try. Errors about a value are also a `ValueError`.
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
"""The extra of this project that installs a package, by the name of the package."""


class TrainerError(Exception):
    """Base class of the errors that this package raises on purpose."""


class ShapeError(TrainerError, ValueError):
    """Tensors have shapes, dtypes or devices that do not match."""


class VocabularyError(ShapeError):
    """Teacher and student have vocabularies of different sizes."""


class LabelError(TrainerError, ValueError):
    """A label is neither a token of the vocabulary nor the ignored index."""


class LogitsError(TrainerError, ValueError):
    """Scored logits are not a distribution (NaN, +inf, or all -inf), or the loss or feature distance is not finite."""


class SettingError(TrainerError, ValueError):
    """A setting is unknown, outside its domain, or in conflict with another setting."""


class DataError(TrainerError, ValueError):
    """Data cannot be read, is invalid, or is too short to train on."""


class ModelFileError(TrainerError, ValueError):
    """A model cannot be loaded from its files, or does not fit the run."""


class CheckpointError(TrainerError, ValueError):
    """A checkpoint is missing, damaged, or of another run."""


class DriftError(CheckpointError, SettingError):
    """A run was saved with another setting, text, model or machine, so it cannot be resumed."""


class OutputError(TrainerError, OSError):
    """Results cannot be written to a path, or other files exist there."""


class PackageError(TrainerError, ImportError):
    """A package that a requested feature needs is not installed, or cannot be imported."""


class CallbackError(TrainerError, TypeError):
    """An object is not a valid callback, a hook or callback is unknown, or a callback returned an invalid value."""


class SmokeError(TrainerError, RuntimeError):
    """A smoke run ended before its first step, so it has no result."""


class CallbackNote(str):
    """A note on an exception that a callback raised: it names the hook. Programs recognise the note by its type."""


class RankError(TrainerError, RuntimeError):
    """Another process of the run failed, or differs from this one."""


class LostRankError(RankError):
    """Another process of the run was killed or does not answer; it left no error message."""


class StopRequestedError(TrainerError, RuntimeError):
    """A run was asked to stop: it saved a checkpoint after its step, and ended without a result."""


class ProviderError(TrainerError, ValueError):
    """A teacher or student violated its protocol."""


class PassConsumedError(TrainerError, RuntimeError):
    """A gradient was passed to a forward pass that has already received one."""


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or the name of its type if it has no message.

    Libraries append stack frames and hints. Messages of this package are one line.
    """
    lines = (" ".join(line.split()) for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def missing_package(error: Exception) -> str | None:
    """Return a line with the command that installs the package that `error` misses; None if no extra installs it."""
    if isinstance(error, ModuleNotFoundError) and error.name in PACKAGES:
        return f"{error.name} is not installed: pip install 'pv-contracts[{PACKAGES[error.name]}]'"
    return None


def similar_path(path: Path) -> str:
    """Return ` (did you mean 'PATH'?)` if `path` does not exist and a similar path does, else "".

    Only the outermost missing part of `path` is replaced, by the most similar name in the same directory.
    """
    try:
        # Search from the root downwards, to name a misspelt directory instead of the file below it.
        missing = next((part for part in reversed((path, *path.parents)) if not part.exists()), None)
        if missing is None:
            return ""
        names = [entry.name for entry in missing.parent.iterdir()]
    except OSError:  # the directory cannot be read, or the name is too long
        return ""
    near = difflib.get_close_matches(missing.name, names, n=1)
    return f" (did you mean '{missing.with_name(near[0]) / path.relative_to(missing)}'?)" if near else ""
