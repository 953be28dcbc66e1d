"""Attacks on the origins of settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, place
from falsifiers.settings.attempts import origins_of, started, toml_file
from falsifiers.settings.cases import ALIASES, LEGAL, PATH_SETTINGS, SWITCHES, as_text, as_toml, variables
from reference_trainer.config.settings import Settings


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
    name = st.sampled_from(sorted(ALIASES)) | st.sampled_from(sorted(LEGAL))  # few have two variables
    names = draw(st.sets(name, min_size=1, max_size=6))
    found = Given({}, {}, {}, {})
    names -= {"max_steps", "resume", "rewind"} if "smoke" in names else set()
    for name in sorted(names):
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
    usual = Settings()
    with toml_file(as_toml(given.file)) as path:
        # A file that a flag names counts before the one that the variable names, which needn't be there.
        environment = given.environment | {"REFERENCE_TRAINER_CONFIG": str(path) if by_variable else "/nowhere.toml"}
        found = subject.gather(given.flags, environment, None if by_variable else path)
    for name, default in usual:
        value, expected = getattr(found, name), given.expected.get(name, default)
        assert _same(name, value, expected), f"{name} is {value!r}; expected {expected!r}"


def falsify_every_setting_has_flag_variable_and_key(subject: Any) -> None:
    names = Settings.model_fields.keys()
    assert names == LEGAL.keys(), f"settings without a known legal value, or none any more: {names ^ LEGAL.keys()}"
    with place() as where:
        for name, value in ((name, values[0]) for name, values in LEGAL.items()):
            for origin, arguments, environment in _each_origin(where, name, value):
                runs, ended = started(subject, where, *arguments, **environment)
                assert len(runs) == 1, f"{origin} = {value}: exit code {ended.exit_code}, {ended.output}"
                found = getattr(runs[0], name)
                assert _same(name, found, value), f"{origin} = {value!r} gives the run {name} = {found!r}"


def _each_origin(where: Place, name: str, value: Any) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    flag, file = f"--{name.replace('_', '-')}", where.root / "settings.toml"
    file.write_text(as_toml({name: value}), encoding="utf-8")
    yield flag, [flag] if value is True else [flag, as_text(value)], {}
    for variable in variables(name):
        yield variable, [], {variable: as_text(value)}
    yield f"{name} in the file", ["--config", str(file)], {}


def falsify_empty_flags_are_refused(subject: Any) -> None:
    """As of `--lr "$LR"` with an unset LR. The subject is the command line."""
    flags = [f"--{name.replace('_', '-')}" for name in LEGAL if name not in SWITCHES]
    with place() as where:
        for flag in (*flags, "--config"):
            runs, ended = started(subject, where, flag, "", REFERENCE_TRAINER_LR="0.1")
            case = f"{flag} '': exit code {ended.exit_code}, {ended.output!r}"
            assert ended.exit_code == 2 and not runs, f"{case}, {len(runs)} runs; expected exit code 2 and none"
            assert flag in ended.output, f"{case}; expected the flag's name"
