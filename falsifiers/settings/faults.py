"""Wrong versions of public functions of the trainer, for mutants."""

from typing import Any

from pydantic import BaseModel

ALIASES = ("APR_DISTILL_MAX_STEPS", "APR_DISTILL_LOG_EVERY", "APR_DISTILL_PROJECT_TO_STEPS")


def environment_dropped(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    return original(flags, {}, config)


def invalid_is_unset(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    try:
        return original(flags, environment, config)
    except ValueError as error:
        if "invalid value" not in str(error):
            raise
        return original({}, {}, None)


def zero_is_unset(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    flags, environment = (
        {name: text for name, text in origin.items() if text != "0"} for origin in (flags, environment)
    )
    return original(flags, environment, config)


def dotted_flags_dropped(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    return original({name: text for name, text in flags.items() if "." not in name}, environment, config)


def variables_before_flags(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    named = {name for name in flags if environment.get(f"REFERENCE_TRAINER_{name.upper()}")}
    return original({name: text for name, text in flags.items() if name not in named}, environment, config)


def yaml_unread(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    return original(flags, environment, config if config is None or config.suffix == ".toml" else None)


def file_unread(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    return original(flags, environment, None)


def tables_ignored(original: Any, values: Any) -> Any:
    return original({name: value for name, value in values.items() if not isinstance(value, dict)})


def groups_whole(original: Any, values: Any) -> Any:
    """Every setting of a group that is given counts as chosen, not only those that were given to the group."""
    return original({name: dict(value) if isinstance(value, BaseModel) else value for name, value in values.items()})


def last_name_counts(original: Any, values: Any) -> Any:
    named = dict[str, Any]()
    for name, value in values.items():
        named |= original({name: value})
    return named


def aliases_unchecked(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    theirs = {name for name in environment if name.startswith("APR_DISTILL_") and name not in ALIASES}
    return original(flags, {name: environment[name] for name in environment if name not in theirs}, config)


def zero_unnamed(original: Any, settings: Any) -> Any:
    values = settings.flat()
    return [line for line in original(settings) if values[line.split()[1]]]


def smoke_logged(original: Any, settings: Any) -> Any:
    return original(settings.replace(smoke=None))
