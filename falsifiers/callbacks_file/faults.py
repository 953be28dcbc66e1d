"""Wrong versions of public functions: the faults that the contract `callbacks-file` declares."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any


def defaults_used(original: Any, spec: Any) -> Any:
    """Make a callback with its defaults where it has some."""
    from reference_trainer.errors import SettingError

    try:
        return original(replace(spec, arguments={}))
    except SettingError:
        return original(spec)


def arguments_shared(original: Any, spec: Any) -> Any:
    """Make a callback twice with the same objects."""
    made = original(spec)
    if hasattr(made, "state"):
        made.state = _shared.setdefault((spec.where, repr(spec.arguments)), made.state)
    return made


_shared: dict[tuple[str, str], Any] = {}


def secret_quoted(original: Any, spec: Any) -> Any:
    """Quote the arguments in the refusal."""
    from reference_trainer.errors import SettingError

    try:
        return original(spec)
    except SettingError as error:
        raise SettingError(f"{error}, with {dict(spec.arguments)}") from None


def imported_while_read(original: Any, path: Path) -> Any:
    """Import what a file names when it is read."""
    specs = original(path)
    for each in specs:
        importlib.import_module(each.use.partition(":")[0])
    return specs


def anything_made(original: Any, spec: Any) -> Any:
    """Call whatever a file names."""
    from reference_trainer.errors import SettingError

    try:
        return original(spec)
    except SettingError as error:
        if "subclass" not in str(error):
            raise
        return None


def import_path_executed(original: Any, path: Path | None) -> Any:
    """Take a path that is no file for the callback itself."""
    if path is not None and not path.exists() and ":" in str(path):
        module, _, name = str(path).partition(":")
        return (getattr(importlib.import_module(module), name)(),)
    return original(path)


def empty_refused(original: Any, path: Path) -> Any:
    """Refuse a file without callbacks."""
    from reference_trainer.errors import SettingError

    specs = original(path)
    if not specs:
        raise SettingError(f"{path} has no callbacks")
    return specs


def file_ignored(original: Any, path: Path | None) -> Any:
    """Make no callback."""
    return ()
