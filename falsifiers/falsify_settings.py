"""Attacks on where settings come from, and on what is refused before anything is loaded.

The subject has `gather`, `Settings` and `SettingError`, as `reference_trainer.sources` does; where it is said, it is
the command line, `reference_trainer.cli`, whose run is replaced by one that only notes its settings.
"""

from __future__ import annotations

import importlib
import itertools
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.settings_cases import (
    COUNT,
    ILLEGAL,
    LEGAL,
    NO_COUNTS,
    NO_COUNTS_IN_TOML,
    PATH_SETTINGS,
    WRONG_TYPES,
    as_text,
    as_toml,
    variables,
)
from falsifiers.smoke_cases import Place, changes, invoked, place


@contextmanager
def _toml(text: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "settings.toml"
        path.write_text(text, encoding="utf-8")
        yield path


def _same(name: str, found: Any, expected: Any) -> bool:
    expected = Path(expected) if name in PATH_SETTINGS and expected is not None else expected
    return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)


@dataclass(frozen=True)
class Given:
    """What flags, variables and file say, and which value has to count."""

    flags: dict[str, str]
    environment: dict[str, str]
    file: dict[str, Any]
    expected: dict[str, Any]


def _origins(name: str) -> list[str]:
    """Where a setting may come from, what counts most first."""
    return ["flag", *variables(name), "file"]


@st.composite
def given_settings(draw: st.DrawFn) -> Given:
    """A few settings, each from one origin or more: the one that counts says another value than the rest."""
    names = draw(st.sets(st.sampled_from(sorted(LEGAL)), min_size=1, max_size=6))
    found = Given({}, {}, {}, {})
    for name in sorted(names - {"max_steps"} if "smoke" in names else names):
        origins = draw(st.lists(st.sampled_from(_origins(name)), min_size=1, unique=True))
        first, *rest = sorted(origins, key=_origins(name).index)
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
def falsify_flag_before_environment_before_file(subject: Any, given: Given, by_variable: bool) -> None:
    """Of several origins the first counts; an empty variable is none; what nobody says is the default."""
    usual = subject.Settings()
    with _toml(as_toml(given.file)) as path:
        # A file that a flag names counts before the one that the variable names, which needn't be there.
        environment = given.environment | {"REFERENCE_TRAINER_CONFIG": str(path) if by_variable else "/nowhere.toml"}
        found = subject.gather(given.flags, environment, None if by_variable else path)
    for field in fields(usual):
        value, expected = getattr(found, field.name), given.expected.get(field.name, getattr(usual, field.name))
        assert _same(field.name, value, expected), f"{field.name} is {value!r}; expected {expected!r}"


@contextmanager
def _noting() -> Iterator[list[Any]]:
    """A run that only notes the settings that it was started with."""
    noted: list[Any] = []

    def run(settings: Any, **rest: Any) -> None:
        noted.append(settings)
        raise SystemExit(0)

    with mock.patch.object(importlib.import_module("reference_trainer.distill"), "distill", run):
        yield noted


def falsify_every_setting_has_flag_variable_and_key(subject: Any) -> None:
    """From the command line to the run, for each setting; the help names each. The subject is the command line."""
    names = {field.name for field in fields(subject.Settings)}
    assert names == LEGAL.keys(), f"settings without a known legal value, or none any more: {names ^ LEGAL.keys()}"
    with place() as where, _noting() as noted:
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
    """The settings in the order of their declaration, each with the default that isn't nothing or off."""
    names = [field.name.replace("_", "-") for field in fields(subject.Settings)]
    listed = [name for name in re.findall(r"^  --([a-z-]+) ", text, re.M) if name in names]
    assert listed == names, f"the help lists {listed}; expected {names}"
    parts = dict(zip(listed, re.split(r"^  --(?:" + "|".join(names) + ") ", text, flags=re.M)[1:], strict=True))
    for field in fields(subject.Settings):
        said = " ".join(parts[field.name.replace("_", "-")].split())
        if field.default not in (None, False):
            assert f"[default: {field.default}]" in said, f"the help says {said!r} of {field.name}, not its default"


def _each_origin(where: Place, name: str, flag: str, value: Any) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    file = where.root / "settings.toml"
    file.write_text(as_toml({name: value}), encoding="utf-8")
    yield flag, [flag] if value is True else [flag, as_text(value)], {}
    for variable in variables(name):
        yield variable, [], {variable: as_text(value)}
    yield f"{name} in the file", ["--config", str(file)], {}


def _refusal(subject: Any, what: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """What a `SettingError` says of a call that has to be refused."""
    try:
        accepted = function(*arguments, **settings)
    except subject.SettingError as error:
        return str(error)
    raise AssertionError(f"{what} is accepted: {accepted}")


def _assert_said(message: str, *parts: str) -> None:
    for part in parts:
        assert part in message, f"the refusal {message[:300]!r} doesn't say {part!r}"


def _shown(value: Any) -> str:
    """The beginning of a value as a message shows it; a very long one may be cut off."""
    text = repr(value)
    return text if len(text) < 60 else text[:40]


def falsify_degenerate_counts_are_refused(subject: Any) -> None:
    """Every N that is no positive decimal integer, from each origin; the message names it, N, and what is allowed."""
    for text in NO_COUNTS:
        for variable in variables("smoke"):
            message = _refusal(subject, f"{variable}={text!r}", subject.gather, {}, {variable: text}, None)
            _assert_said(message, f"{variable} is ", _shown(text), COUNT)
    for text in [*NO_COUNTS, ""]:
        message = _refusal(subject, f"--smoke {text!r}", subject.gather, {"smoke": text}, {}, None)
        _assert_said(message, f"--smoke is {repr(text)[:80]}; expected ", COUNT)
    for text in NO_COUNTS_IN_TOML:
        with _toml(f"smoke = {text}") as path:
            message = _refusal(subject, f"smoke = {text}", subject.gather, {}, {}, path)
            _assert_said(message, f"smoke in {path} is ", _shown(tomllib.loads(f"n = {text}")["n"]), COUNT)


DIGITS = "0123456789"
TEXTS = st.text(st.sampled_from("0015+-_ .eE٣５x\n\0²Ⅴ\u2028\udcff"), max_size=6) | st.sampled_from(NO_COUNTS)


@given(text=TEXTS | st.integers(0, 10**18).map(str) | st.integers(0, 20).map(lambda n: f"00{n}"))
def falsify_positive_decimal_integers_are_taken(subject: Any, text: str) -> None:
    """Digits 0 to 9, at most 18 of them and not all 0, are N, leading zeros or not; any other text is refused."""
    legal = 0 < len(text) <= 18 and all(sign in DIGITS for sign in text) and text.strip("0") != ""
    try:
        found = subject.gather({"smoke": text}, {}, None).smoke
    except subject.SettingError as error:
        assert not legal, f"--smoke {text!r} is refused: {error}"
        return
    assert legal, f"--smoke {text!r} is accepted, as {found!r}"
    assert found == sum(DIGITS.index(digit) * 10**k for k, digit in enumerate(reversed(text))), f"{text!r} is {found}"


def falsify_refusals_of_the_command_line(subject: Any) -> None:
    """Exit code 2, one line, no run, no file; from flag, variables and file. The subject is the command line."""
    with place() as where, _noting() as noted:
        file = where.tree / "settings.toml"
        for text in [text for text in NO_COUNTS if len(text) < 30]:
            cases = [("--smoke", ["--smoke", text], {})]
            cases += [(variable, [], {variable: text}) for variable in variables("smoke")]
            for origin, flags, environment in cases:
                _assert_refused(subject, where, noted, origin, text, flags, environment)
        for text in [text for text in NO_COUNTS_IN_TOML if len(text) < 30]:
            file.write_text(f"smoke = {text}\n", encoding="utf-8")
            value = tomllib.loads(f"n = {text}")["n"]
            _assert_refused(subject, where, noted, f"smoke in {file}", value, ["--config", str(file)], {})


def _assert_refused(
    subject: Any, where: Place, noted: list[Any], origin: str, value: Any, flags: list[str], environment: dict[str, str]
) -> None:
    before = where.listing()
    ended = invoked(subject, where, *where.flags(), *flags, **environment)
    case = f"{origin} = {value!r}: exit {ended.exit_code}, {ended.output!r}"
    assert ended.exit_code == 2 and not noted, f"{case}, {len(noted)} runs; expected exit 2 and none"
    _assert_said(ended.output, f"error: {origin} is {value!r}; expected {COUNT}")
    assert not changes(before, where.listing()), f"{case}; it changed {changes(before, where.listing())}"


def falsify_two_limits_are_refused(subject: Any) -> None:
    """smoke with max_steps, from whichever two origins: both are named with their values."""
    for smoke, limit in itertools.product(_origins("smoke"), _origins("max_steps")):
        flags, environment, file = {}, {}, {}
        for name, origin, value in (("smoke", smoke, 3), ("max_steps", limit, 41)):
            holder = {"flag": flags, "file": file}.get(origin, environment)
            holder[origin if holder is environment else name] = value if origin == "file" else str(value)
        with _toml(as_toml(file)) as path:
            names = {"flag": "--{}", "file": f"{{}} in {path}"}
            what = f"smoke from {smoke} with max_steps from {limit}"
            message = _refusal(subject, what, subject.gather, flags, environment, path)
            said = [names.get(smoke, smoke).format("smoke")]
            said.append(names.get(limit, limit).format("max-steps" if limit == "flag" else "max_steps"))
            _assert_said(message, f"{said[0]} is 3", f"{said[1]} is 41")


def falsify_unknown_keys_are_refused(subject: Any) -> None:
    """With the setting that was probably meant."""
    meant = {"batchsize": "batch_size", "batch-size": "batch_size", "temprature": "temperature", "smok": "smoke"}
    meant |= {"maxsteps": "max_steps", "SMOKE_": "", "max_step": "max_steps", "Smoke": "smoke", "teacher_step": ""}
    for key, name in meant.items():
        with _toml(f'"{key}" = 5') as path:
            message = _refusal(subject, f"the key {key}", subject.gather, {}, {}, path)
        _assert_said(message, repr(key), str(path), f"did you mean {name!r}" if name else "")
    for text in ("[smoke]\nn = 5", "[distill]\nsmoke = 5", "distill.smoke = 5", "[[smoke]]"):
        with _toml(text) as path:
            _assert_said(_refusal(subject, text, subject.gather, {}, {}, path), str(path))


def falsify_unknown_variables_are_refused(subject: Any) -> None:
    """Those with our prefix, with the one that was probably meant; all others are none of the trainer's business."""
    meant = {"BATCHSIZE": "BATCH_SIZE", "TEMPRATURE": "TEMPERATURE", "batch_size": "", "": "", "CONFIG_FILE": "CONFIG"}
    for name, hint in meant.items():
        name = f"REFERENCE_TRAINER_{name}"
        message = _refusal(subject, f"the variable {name}", subject.gather, {}, {name: "5"}, None)
        _assert_said(message, name, f"did you mean REFERENCE_TRAINER_{hint}" if hint else "")
    for name, hint in {"MAX_STEP": "MAX_STEPS", "LOG_EVRY": "LOG_EVERY", "PROJECT_TO_STEP": "PROJECT_TO_STEPS"}.items():
        name = f"APR_DISTILL_{name}"
        message = _refusal(subject, f"the variable {name}", subject.gather, {}, {name: "5"}, None)
        _assert_said(message, name, f"did you mean APR_DISTILL_{hint}?")
    others = {"REFERENCE": "5", "APR_DISTILL_LOSS": "5", "REFERENCE_TRAINERS": "5", "XAPR_DISTILL_MAX_STEPS": "5"}
    assert subject.gather({}, others, None) == subject.gather({}, {}, None), f"{others} changed the settings"


def falsify_wrong_values_are_refused(subject: Any) -> None:
    """Every setting, from flag, variables and file, by origin, value and what is allowed."""
    for name, (allowed, texts) in ILLEGAL.items():
        for text in texts:
            message = _refusal(subject, f"--{name} {text!r}", subject.gather, {name: text}, {}, None)
            _assert_said(message, f"--{name.replace('_', '-')} is ", _shown(text), allowed)
            for variable in variables(name) if text else []:
                what = f"{variable}={text!r}"
                message = _refusal(subject, what, subject.gather, {}, {variable: text}, None)
                _assert_said(message, f"{variable} is ", _shown(text), allowed)
    for name, text, allowed in WRONG_TYPES:
        with _toml(f"{name} = {text}") as path:
            message = _refusal(subject, f"{name} = {text}", subject.gather, {}, {}, path)
            _assert_said(message, f"{name} in {path} is ", allowed)


LARGEST = 2**20


def falsify_unreadable_files_are_refused(subject: Any) -> None:
    """A file of settings that isn't there, is no file, or is no TOML: refused by its name."""
    cases = ["smoke", "smoke = ", "= 5", "smoke = 5\nsmoke = 6", "smoke = \ud800", f"smoke = 1{'0' * 5000}"]
    cases += ["smoke = " + "[" * 5000]
    for text in cases:
        with _toml("") as path:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            message = _refusal(subject, text[:40], subject.gather, {}, {}, path)
            _assert_said(message, str(path))
    with _toml("#" * LARGEST) as path:
        assert subject.gather({}, {}, path) == subject.gather({}, {}, None), "a comment changed the settings"
    with _toml("#" * (LARGEST + 1)) as path:
        _assert_said(_refusal(subject, "a huge file", subject.gather, {}, {}, path), f"{path} has more than 1,048,576 ")
    for path in (Path("/nowhere/settings.toml"), Path("/")):
        _assert_said(_refusal(subject, str(path), subject.gather, {}, {}, path), str(path))


LIBRARY: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["smoke", "max_steps", "batch_size", "project_to_steps"], (0, -1, 5.0, True, "5", [5], 10**18)),
    **dict.fromkeys(["temperature", "lr"], (0, -1.0, float("nan"), float("inf"), True, "2.0", 1j)),
    **dict.fromkeys(["ce_weight", "kd_weight"], (-1e-9, float("nan"), 2e30, False, "1")),
    **dict.fromkeys(["out", "data", "teacher"], ("a text", 1, b"bytes", Path("a\0b"))),
    "seed": (-1, 1.0, True, 10**18, 10**5000),
    "width": (0, 15, 17, 16.0, 65552, True),
    "force": (0, 1, "true"),
    "device": ("gpu", 0, "cuda:x"),
    "dtype": ("float16", 32),
}


BEYOND = "int of thousands of digits"


def falsify_library_refuses_the_same(subject: Any) -> None:
    """`Settings` refuses what no origin may say, by name, value and what is allowed; None too."""
    for name, values in LIBRARY.items():
        for value in values:
            what = f"Settings({name}=...) of {type(value).__name__}"
            message = _refusal(subject, what, subject.Settings, **{name: value})
            _assert_said(message, f"{name} is ", "expected ", BEYOND if value == 10**5000 else _shown(value))
    for name in ("epochs", "out", "seed", "force", "device"):
        _refusal(subject, f"Settings({name}=None)", subject.Settings, **{name: None})
    message = _refusal(subject, "smoke with max_steps", subject.Settings, smoke=3, max_steps=41)
    _assert_said(message, "smoke is 3", "max_steps is 41")
    _refusal(subject, "two weights of 0", subject.Settings, ce_weight=0, kd_weight=0.0)
