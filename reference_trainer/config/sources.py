"""Read settings from flags, environment variables and a file in TOML or YAML, in this order of precedence.

Every setting has a variable `REFERENCE_TRAINER_<NAME>`. Some settings have an older variable too, which is read if the
first one is unset. An empty variable counts as unset.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from reference_trainer.config.kinds import SourcedValue, unknown_variable
from reference_trainer.config.settings import FIELDS, GROUPS, Settings, by_flat_name
from reference_trainer.errors import SettingError, similar_path

PREFIX, ALIAS_PREFIX = "REFERENCE_TRAINER_", "APR_DISTILL_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
LARGEST_FILE = 2**20
"""Largest size of a file in bytes; without a limit, reading a device such as /dev/zero would not end."""


def recipes() -> dict[str, Path]:
    """Return the packaged files of settings, by their names."""
    directory = Path(str(files("reference_trainer") / "recipes"))
    return {path.stem: path for path in sorted(directory.glob("*.yaml"))}


def variables(name: str) -> tuple[str, ...]:
    """Return the environment variables of a setting, by its flat name, in order of precedence."""
    alias = FIELDS[name].validation_alias
    return (f"{PREFIX}{name.upper()}", *([alias] if isinstance(alias, str) else []))


def gather(flags: Mapping[str, str], environment: Mapping[str, str], config: Path | None) -> Settings:
    """Return the settings from flags, environment variables and a file, in this order of precedence.

    Args:
        flags: The values of flags, by flat or dotted names of settings.
        environment: The environment variables.
        config: The path of a file, or the name of one of the `recipes`; None for the path or name in the variable
            `REFERENCE_TRAINER_CONFIG`, if it is set.

    Raises:
        SettingError: A value is invalid, a key or variable is unknown, settings conflict, or the file cannot be read.
            The message names the flag, variable or key.
    """
    _refuse_unknown_variables(environment)
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    if config is not None and not config.exists():
        config = recipes().get(str(config), config)
    # For each setting, the first of its variables that is neither unset nor empty.
    present = {name: next(filter(environment.get, variables(name)), None) for name in FIELDS}
    # From the lowest to the highest precedence: a later source overrides an earlier one.
    sources = (
        by_flat_name(_from_file(config)) if config is not None else {},
        {name: SourcedValue(environment[variable], variable) for name, variable in present.items() if variable},
        by_flat_name({name: SourcedValue(text, flag(name)) for name, text in flags.items()}),
    )
    return Settings(**{name: value for source in sources for name, value in source.items()})


def flag(name: str) -> str:
    """Return the flag of a setting, by its flat or dotted name."""
    return f"--{name.replace('_', '-')}"


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    """Raise `SettingError` for a variable with a prefix of settings that names neither a setting nor a file."""
    names = [CONFIG_VARIABLE, *(variable for name in FIELDS for variable in variables(name))]
    for name in environment:
        prefix = next((start for start in (PREFIX, ALIAS_PREFIX) if name.startswith(start)), None)
        if prefix is not None and name not in names:
            raise unknown_variable(name, prefix, names)


def _from_file(path: Path) -> dict[str, object]:
    """Return the values in a file, each with its source, by the names of the keys; a group has a mapping of values."""
    try:
        with path.open("rb") as file:
            content, rest = file.read(LARGEST_FILE), file.read(LARGEST_FILE)
    except OSError as error:
        hint = "" if path.suffix else f"; expected a file of settings, or one of {', '.join(recipes())}"
        raise SettingError(f"cannot read {path}: {error.strerror}{similar_path(path)}{hint}") from error
    if rest:
        raise SettingError(f"{path} has more than {LARGEST_FILE:,} bytes; expected a file of settings in TOML or YAML")
    if path.suffix in (".yaml", ".yml"):
        return _from_yaml(content, path)
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # also for invalid UTF-8, too many digits and too deep nesting
        hint = "" if path.suffix == ".toml" else "; YAML is read from files whose name ends in .yaml or .yml"
        raise SettingError(f"invalid TOML in {path}: {error}; expected lines such as lr = 0.001{hint}") from error

    def sourced(name: str, value: object) -> object:
        """Return a value with its source; for a group, a mapping of such values."""
        if isinstance(value, dict) and name in GROUPS:
            return {leaf: sourced(f"{name}.{leaf}", member) for leaf, member in value.items()}
        return SourcedValue(value, f"{name!r} in {path}", is_text=False)

    return {name: sourced(name, value) for name, value in table.items()}


def _from_yaml(content: bytes, path: Path) -> dict[str, object]:
    """Return the values of a file in YAML, in the form of `_from_file`."""
    import yaml  # only here, as few runs have such a file

    # Read nodes instead of loaded values, for two reasons. The error for a duplicate key can name both lines. And an
    # unquoted scalar can be parsed like the text of a flag: 1e-3 is a number, although YAML 1.1 reads it as text.

    def members(node: yaml.Node, prefix: str = "") -> dict[str, yaml.Node]:
        """Return the nodes of a mapping by key. Raise `SettingError` for a duplicate key, or one that is no scalar."""
        first, values = dict[str, int](), dict[str, yaml.Node]()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise SettingError(f"invalid key in {path}, line {line}: expected the name of a setting")
            if key.value in first:
                name = repr(prefix + key.value)
                raise SettingError(f"duplicate key {name} in {path}, line {line} (first at line {first[key.value]})")
            first[key.value], values[key.value] = line, value
        return values

    def json_value(node: yaml.Node, name: str) -> object:
        """Return the value of a node inside the value of a setting, such as a member of a JSON object."""
        if isinstance(node, yaml.MappingNode):
            return {key: json_value(member, f"{name}.{key}") for key, member in members(node, f"{name}.").items()}
        if isinstance(node, yaml.SequenceNode):
            return [json_value(member, name) for member in node.value]
        is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
        try:
            return json.loads(node.value) if is_plain else node.value
        except ValueError:
            return node.value

    def setting(node: yaml.Node, name: str) -> object:
        """Return the value of a setting with its source; for a group, a mapping of such values."""
        if isinstance(node, yaml.MappingNode) and name in GROUPS:
            return {leaf: setting(member, f"{name}.{leaf}") for leaf, member in members(node, f"{name}.").items()}
        is_null = node.tag == "tag:yaml.org,2002:null"
        is_text = isinstance(node, yaml.ScalarNode) and node.style is None and not is_null
        value = node.value if is_text else None if is_null else json_value(node, name)
        return SourcedValue(value, f"{name!r} in {path}", is_text)

    try:
        text = content.decode()
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise yaml.YAMLError("expected no aliases")  # nested aliases can expand to gigabytes
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, (yaml.MappingNode, type(None))):
            raise yaml.YAMLError("expected a mapping")
        return {name: setting(node, name) for name, node in members(root).items()} if root else {}
    except (UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        message = " ".join(str(error).split())
        raise SettingError(f"invalid YAML in {path}: {message}; expected lines such as lr: 0.001") from error
