"""Where settings come from: a flag before the environment before a TOML file before the default.

Every setting has its variable `REFERENCE_TRAINER_<NAME>`; three have an older name beside it, which counts after it. An
empty variable is an unset one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from reference_trainer.errors import SettingError
from reference_trainer.settings import Settings, kind_of, shown

__all__ = ["ALIASES", "CONFIG_VARIABLE", "gather", "variable"]

_PREFIX = "REFERENCE_TRAINER_"
CONFIG_VARIABLE = f"{_PREFIX}CONFIG"
ALIASES = {
    "smoke": "APR_DISTILL_MAX_STEPS",
    "log_every": "APR_DISTILL_LOG_EVERY",
    "project_to_steps": "APR_DISTILL_PROJECT_TO_STEPS",
}
_LARGEST_FILE = 2**20  # a device has no end


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{_PREFIX}{name.upper()}"


def gather(flags: Mapping[str, str], environment: Mapping[str, str], config: Path | None) -> Settings:
    """The settings of a run: text from flags and environment, and from the TOML file `config`.

    Without `config`, the file that `REFERENCE_TRAINER_CONFIG` names, if any. Errors: `SettingError`, which says where
    the value came from.
    """
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    _refuse_unknown_variables(environment)
    _refuse_misspelt_aliases(environment)
    filed = _from_file(config) if config is not None else {}
    values, origins = {}, {}
    for name in (each.name for each in fields(Settings)):
        found = _text_of(name, flags, environment)
        if found is not None:
            origins[name], text = found
            values[name] = _read(name, origins[name], text)
        elif name in filed:
            origins[name], values[name] = f"{name} in {config}", filed[name]
    _refuse_two_limits(values, origins)
    return Settings(**values)


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = [CONFIG_VARIABLE, *(variable(each.name) for each in fields(Settings))]
    for name in environment:
        if name.startswith(_PREFIX) and name not in known:
            near = _nearest(name, known)
            hint = f"did you mean {near}?" if near else "`reference-trainer distill --help` names the settings"
            raise SettingError(f"the environment has {name[:80]}, which is no setting; {hint}")


def _refuse_misspelt_aliases(environment: Mapping[str, str]) -> None:
    for name in set(environment) - set(ALIASES.values()):
        near = _nearest(name, ALIASES.values(), cutoff=0.9)
        if near and name.startswith("APR_DISTILL_"):
            raise SettingError(f"the environment has {name[:80]}, which nothing reads; did you mean {near}?")


def _nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def _text_of(name: str, flags: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The origin and text of a setting that a flag or the environment gives."""
    if name in flags:
        return f"--{name.replace('_', '-')}", flags[name]
    for origin in (variable(name), ALIASES.get(name, "")):
        if environment.get(origin):
            return origin, environment[origin]
    return None


def _read(name: str, origin: str, text: str) -> Any:
    kind = kind_of(name)
    try:
        value = kind.read(text)
    except ValueError:
        value = None
    if value is None or not kind.holds(value):
        raise SettingError(f"{origin} is {shown(text)}; expected {kind.allowed}")
    return value


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise SettingError(f"{path} can't be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE:
        raise SettingError(f"{path} has more than {_LARGEST_FILE:,} bytes; expected a TOML file of settings")
    try:
        raw = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # what tomllib raises, also for bytes, numbers and depth beyond it
        raise SettingError(f"{path} is no TOML: {error}") from error
    return {name: _checked(name, value, path) for name, value in raw.items()}


def _checked(name: str, value: Any, path: Path) -> Any:
    known = [each.name for each in fields(Settings)]
    if name not in known:
        near = _nearest(name, known)
        hint = f"did you mean {near!r}?" if near else f"the settings are {', '.join(known)}"
        raise SettingError(f"{path} sets {name!r}, which is no setting; {hint}")
    kind = kind_of(name)
    if isinstance(value, str) and value and kind.metavar == "PATH":
        value = kind.read(value)
    if not kind.holds(value):
        raise SettingError(f"{name} in {path} is {shown(value)}; expected {kind.allowed}")
    return value


def _refuse_two_limits(values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    if "smoke" in values and "max_steps" in values:
        raise SettingError(
            f"{origins['smoke']} is {values['smoke']} and {origins['max_steps']} is {values['max_steps']}; expected "
            f"one of them: a smoke run is cut off by its own number, and saves nothing"
        )
