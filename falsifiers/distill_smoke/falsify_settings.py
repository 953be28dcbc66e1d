"""Attacks on the origins of settings.

The subject has `gather` and `Settings`, as `config.sources` does; where stated, it is the command line,
`reference_trainer.cli`, whose run is replaced by one that records its settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, invoked, place
from falsifiers.distill_smoke.settings_attempts import noting, origins_of, toml_file
from falsifiers.distill_smoke.settings_cases import LEGAL, PATH_SETTINGS, as_text, as_toml, variables


def _same(name: str, found: Any, expected: Any) -> bool:
    expected = Path(expected) if name in PATH_SETTINGS and expected is not None else expected
    return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)


@dataclass(frozen=True)
class Given:
    """Values of flags, variables and file, and the expected settings."""

    flags: dict[str, str]
    environment: dict[str, str]
    file: dict[str, Any]
    expected: dict[str, Any]


@st.composite
def given_settings(draw: st.DrawFn) -> Given:
    """Draw settings with one origin or more; the origin that counts has another value than the rest."""
    names = draw(st.sets(st.sampled_from(sorted(LEGAL)), min_size=1, max_size=6))
    found = Given({}, {}, {}, {})
    for name in sorted(names - {"max_steps"} if "smoke" in names else names):
        origins = draw(st.lists(st.sampled_from(origins_of(name)), min_size=1, unique=True))
        first, *rest = sorted(origins, key=origins_of(name).index)
        found.expected[name] = draw(st.sampled_from(LEGAL[name]))
        other = draw(st.sampled_from([value for value in LEGAL[name] if value != found.expected[name]]))
        said = {first: found.expected[name], **dict.fromkeys(rest, other)}
        if "flag" in said:
            found.flags[name] = as_text(said["flag"])
        if "file" in said:
            found.file[name] = said["file"]
        for variable in variables(name):
            if variable in said or draw(st.booleans()):
                found.environment[variable] = as_text(said[variable]) if variable in said else ""
    return found


@given(given=given_settings(), by_variable=st.booleans())
def falsify_precedence_of_origins(subject: Any, given: Given, by_variable: bool) -> None:
    """The first of several origins counts; an empty variable counts as unset; without origin, the default."""
    usual = subject.Settings()
    with toml_file(as_toml(given.file)) as path:
        # A file that a flag names counts before the one that the variable names, which needn't be there.
        environment = given.environment | {"REFERENCE_TRAINER_CONFIG": str(path) if by_variable else "/nowhere.toml"}
        found = subject.gather(given.flags, environment, None if by_variable else path)
    for name, default in usual:
        value, expected = getattr(found, name), given.expected.get(name, default)
        assert _same(name, value, expected), f"{name} is {value!r}; expected {expected!r}"


def falsify_every_setting_has_flag_variable_and_key(subject: Any) -> None:
    """Each origin of each setting reaches the run, and the help lists each. The subject is the command line."""
    names = {name for name, _ in subject.Settings()}
    assert names == LEGAL.keys(), f"settings without a known legal value, or none any more: {names ^ LEGAL.keys()}"
    with place() as where, noting() as noted:
        help_text = invoked(subject, where, "--help").output
        _assert_help(subject, help_text)
        for name, value in ((name, values[0]) for name, values in LEGAL.items()):
            flag = f"--{name.replace('_', '-')}"
            assert re.search(rf"^ *{flag} ", help_text, re.M), f"the help doesn't name {flag}"
            for origin, arguments, environment in _each_origin(where, name, flag, value):
                noted.clear()
                ended = invoked(subject, where, *arguments, **environment)
                assert len(noted) == 1, f"{origin} = {value}: exit {ended.exit_code}, {ended.output}"
                found = getattr(noted[0], name)
                assert _same(name, found, value), f"{origin} = {value!r} gives the run {name} = {found!r}"


def _assert_help(subject: Any, text: str) -> None:
    """The help lists the settings in the order of declaration, with every default other than None and False."""
    names = [name.replace("_", "-") for name, _ in subject.Settings()]
    listed = [name for name in re.findall(r"^  --([a-z-]+) ", text, re.M) if name in names]
    assert listed == names, f"the help lists {listed}; expected {names}"
    parts = dict(zip(listed, re.split(r"^  --(?:" + "|".join(names) + ") ", text, flags=re.M)[1:], strict=True))
    for name, default in subject.Settings():
        text = " ".join(parts[name.replace("_", "-")].split())
        if default not in (None, False):
            assert f"[default: {default}]" in text, f"the help of {name} is {text!r}, without its default {default}"


def _each_origin(where: Place, name: str, flag: str, value: Any) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    file = where.root / "settings.toml"
    file.write_text(as_toml({name: value}), encoding="utf-8")
    yield flag, [flag] if value is True else [flag, as_text(value)], {}
    for variable in variables(name):
        yield variable, [], {variable: as_text(value)}
    yield f"{name} in the file", ["--config", str(file)], {}
