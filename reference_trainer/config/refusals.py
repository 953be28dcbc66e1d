"""The messages about settings that are refused: name, value, origin, and the values that are allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from reference_trainer.config.kinds import kind_of
from reference_trainer.errors import SettingError

__all__ = ["Given", "choices", "origin", "refusal", "shown", "suggestion", "unknown_variable"]


@dataclass(frozen=True, slots=True)
class Given:
    """A value as a flag, a variable or the file gives it, and the place that gives it, such as `--smoke`."""

    value: Any
    origin: str
    is_text: bool = True


def origin(name: str, given: Any) -> str:
    """Return the place that gives a setting; the setting's name if the value comes from a Python call."""
    return given.origin if isinstance(given, Given) else repr(name)


def shown(value: Any) -> str:
    """Return the `repr` of a value, cut off after 80 characters."""
    try:
        return repr(value)[:80]
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return f"{type(value).__name__} of thousands of digits"


def refusal(error: ValidationError, fields: Mapping[str, FieldInfo]) -> SettingError:
    """Return the `SettingError` for the first error that pydantic found in settings with these `fields`."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return SettingError(first["msg"])
    name, given = str(first["loc"][0]), first["input"]
    place = origin(name, given)
    if first["type"] == "extra_forbidden":
        return SettingError(f"unknown setting {place} ({suggestion(name, fields) or choices(fields)})")
    value = given.value if isinstance(given, Given) else given
    return SettingError(f"invalid value {shown(value)} for {place}: expected {kind_of(fields[name]).expected}")


def unknown_variable(name: str, prefix: str, known: Iterable[str]) -> SettingError:
    """Return the `SettingError` for a variable that is not `known`, with a hint on those that have its `prefix`."""
    ours = [each.removeprefix(prefix) for each in known if each.startswith(prefix)]
    hint = suggestion(name.removeprefix(prefix), ours, prefix) or choices(prefix + each for each in ours)
    return SettingError(f"unknown environment variable {name[:80]} ({hint})")


def suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return `did you mean ...?` with the known name that is most like `name`; empty if none is like it."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {prefix + near[0] if prefix else repr(near[0])}?" if near else ""


def choices(known: Iterable[str]) -> str:
    """Return `choose from ...` with the known names, or the command that lists them if they are more than five."""
    names = list(known)
    return f"choose from {', '.join(names)}" if len(names) <= 5 else "run `reference-trainer distill --help` for a list"
