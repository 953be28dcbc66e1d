"""Wrong versions of public functions of the trainer, for mutants."""

from __future__ import annotations

from typing import Any

PREFIX = "REFERENCE_TRAINER_"
ALIASES = ("APR_DISTILL_MAX_STEPS", "APR_DISTILL_LOG_EVERY", "APR_DISTILL_PROJECT_TO_STEPS")


def environment_dropped(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Gather the settings without the environment."""
    return original(flags, {}, config)


def file_dropped(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Gather the settings without the file that `--config` names."""
    return original(flags, environment, None)


def environment_before_flag(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Drop the flags whose variable is set."""
    left = {name: text for name, text in flags.items() if not environment.get(f"{PREFIX}{name.upper()}")}
    return original(left, environment, config)


def empty_is_set(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Read an empty variable as zero."""
    return original(flags, {name: text or "0" for name, text in environment.items()}, config)


def invalid_is_unset(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Return the defaults where a value is invalid."""
    try:
        return original(flags, environment, config)
    except ValueError as error:
        if "invalid value" not in str(error):
            raise
        return original({}, {}, None)


def zero_is_unset(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Read a flag or variable of 0 as not given."""
    flags, environment = ({name: text for name, text in given.items() if text != "0"} for given in (flags, environment))
    return original(flags, environment, config)


def int_decides(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Read every flag that `int()` accepts as that integer."""

    def read(text: str) -> str:
        try:
            return str(int(text))
        except ValueError:
            return text

    return original({name: read(text) for name, text in flags.items()}, environment, config)


def numbers_of_any_kind(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Accept nan and inf from a flag."""
    odd = {name: float(text) for name, text in flags.items() if text in ("nan", "inf")}
    settings = original({name: text for name, text in flags.items() if name not in odd}, environment, config)
    return settings.model_copy(update=odd)


def true_is_one(original: Any, self: Any, **given: Any) -> None:
    """Read True as 1 in `smoke`."""
    original(self, **{name: 1 if name == "smoke" and value is True else value for name, value in given.items()})


def library_unchecked(original: Any, self: Any, **given: Any) -> None:
    """Return the default settings instead of refusing a value."""
    try:
        original(self, **given)
    except ValueError:
        original(self)


def unknown_is_ignored(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Ignore the file and the environment where a name is unknown."""
    try:
        return original(flags, environment, config)
    except ValueError as error:
        if "unknown" not in str(error):
            raise
        return original(flags, {}, None)


def aliases_unchecked(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Ignore unknown variables of the source systems."""
    theirs = {name for name in environment if name.startswith("APR_DISTILL_") and name not in ALIASES}
    return original(flags, {name: environment[name] for name in environment if name not in theirs}, config)


def missing_file_is_empty(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Ignore a settings file that does not exist."""
    return original(flags, environment, config if config and config.exists() else None)


def flag_silences_the_other_limit(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Ignore the variable of `max_steps` where `--smoke` is given."""
    silenced = {f"{PREFIX}MAX_STEPS"} if "smoke" in flags else set[str]()
    return original(flags, {name: environment[name] for name in environment if name not in silenced}, config)


def empty_flag_is_unset(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Read a flag with an empty value as not given."""
    return original({name: text for name, text in flags.items() if text}, environment, config)


def torch_before_settings(original: Any, *origins: Any) -> Any:
    """Import torch before the settings are read."""
    import torch

    del torch
    return original(*origins)
