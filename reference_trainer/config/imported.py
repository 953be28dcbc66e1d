"""Names of the user's code, as a file or a setting gives them."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from reference_trainer.errors import SettingError

__all__ = ["import_object"]


def import_object(where: str, use: str) -> Any:
    """Return what `use`, MODULE:NAME, names. Raise `SettingError`, with `where` it is written, if there is none."""
    module, _, name = use.partition(":")
    try:
        target: Any = importlib.import_module(module)
    except Exception as error:
        hint = "; install it, or add its directory to PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
        raise SettingError(f"{where}: cannot import {module}: {type(error).__name__}: {error}{hint}") from error
    for part in name.split("."):
        if not hasattr(target, part):
            near = difflib.get_close_matches(part, dir(target))
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise SettingError(f"{where}: unknown name {part!r} in {module}{hint}")
        target = getattr(target, part)
    return target
