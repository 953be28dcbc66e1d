"""Wrong versions of public functions of the trainer, for mutants."""

from typing import Any

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


def aliases_unchecked(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    theirs = {name for name in environment if name.startswith("APR_DISTILL_") and name not in ALIASES}
    return original(flags, {name: environment[name] for name in environment if name not in theirs}, config)
