"""Read settings from flags, environment variables and a TOML file, in this order of precedence.

Every setting has a variable `REFERENCE_TRAINER_<NAME>`; its older alias, if it has one, is read after it. An empty
variable counts as unset.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from reference_trainer.config.kinds import SourcedValue, kind_of, unknown_variable
from reference_trainer.config.settings import Settings
from reference_trainer.errors import SettingError

PREFIX, ALIAS_PREFIX = "REFERENCE_TRAINER_", "APR_DISTILL_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
LARGEST_FILE = 2**20
"""In bytes; a device such as /dev/zero has no end."""


def variables(name: str) -> tuple[str, ...]:
    """Return the environment variables of a setting, in order of precedence."""
    alias = Settings.model_fields[name].validation_alias
    return (f"{PREFIX}{name.upper()}", *([alias] if isinstance(alias, str) else []))


def gather(flags: Mapping[str, str], environment: Mapping[str, str], config: Path | None) -> Settings:
    """Return the settings that flags, environment and the TOML file `config` give, a flag before all others.

    Without `config`, the file that `REFERENCE_TRAINER_CONFIG` names is read, if any. Raise `SettingError`, which names
    the origin, for an invalid value, an unknown key or variable, an unreadable file, and conflicting settings.
    """
    _refuse_unknown_variables(environment)
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    sources = (
        InitSettingsSource(_Merged, {name: SourcedValue(text, _flag(name)) for name, text in flags.items()}),
        _Variables(environment),
        InitSettingsSource(_Merged, _from_file(config) if config is not None else {}),
    )
    merged = _Merged(sources=sources)  # type: ignore[call-arg]  # not a setting: see settings_customise_sources
    return Settings(**dict(merged))


class _Merged(Settings, BaseSettings):
    """Settings whose values are a `SourcedValue`; of several sources, the first that gives a setting counts."""

    model_config = SettingsConfigDict(case_sensitive=True, validate_default=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the `sources` that the constructor was given, instead of those of the process."""
        initial: Any = init_settings  # an InitSettingsSource, which pydantic types as its base class
        sources: tuple[PydanticBaseSettingsSource, ...] = initial.init_kwargs["sources"]
        return sources

    @field_validator("*", mode="wrap")
    @classmethod
    def _read(cls, read: SourcedValue, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        assert info.field_name is not None, "a validator of fields gets the name of one"
        kind = kind_of(cls.model_fields[info.field_name])
        try:
            return validate(kind.read(read.value) if read.is_text else read.value)
        except ValidationError as error:  # its input would be the bare value; that of a ValueError is `given`
            raise ValueError from error


class _Variables(PydanticBaseSettingsSource):
    """The settings that the variables of an environment give."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(_Merged)
        self._environment = environment

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[object, str, bool]:
        present = next((variable for variable in variables(field_name) if self._environment.get(variable)), None)
        return present and SourcedValue(self._environment[present], present), field_name, False

    def __call__(self) -> dict[str, object]:
        values = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in values.items() if value is not None}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = [CONFIG_VARIABLE, *(variable for name in Settings.model_fields for variable in variables(name))]
    for name in environment:
        prefix = next((start for start in (PREFIX, ALIAS_PREFIX) if name.startswith(start)), None)
        if prefix is not None and name not in known:
            raise unknown_variable(name, prefix, known)


def _from_file(path: Path) -> dict[str, SourcedValue]:
    try:
        with path.open("rb") as file:
            content, more = file.read(LARGEST_FILE), file.read(LARGEST_FILE)
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from error
    if more:
        raise SettingError(f"{path} has more than {LARGEST_FILE:,} bytes; expected a TOML file of settings")
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # also for bytes, numbers and depth beyond Python's limits
        raise SettingError(f"invalid TOML in {path}: {error}; only TOML is read, such as lr = 0.001") from error
    return {name: SourcedValue(value, f"{name!r} in {path}", is_text=False) for name, value in table.items()}
