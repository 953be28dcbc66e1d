"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any


def defaults_used(original: Any, spec: Any) -> Any:
    from reference_trainer.errors import SettingError

    try:
        return original(replace(spec, arguments={}))
    except SettingError:
        return original(spec)


def secret_quoted(original: Any, spec: Any) -> Any:
    from reference_trainer.errors import SettingError

    try:
        return original(spec)
    except SettingError as error:
        raise SettingError(f"{error}, with {dict(spec.arguments)}") from None


def import_path_executed(original: Any, path: Path | None) -> Any:
    if path is not None and not path.exists() and ":" in str(path):
        module, _, name = str(path).partition(":")
        return (getattr(importlib.import_module(module), name)(),)
    return original(path)
