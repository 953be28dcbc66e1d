"""Attacks on the refusal of settings. The subject has `gather`, as `config.sources` does, or `Settings`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from falsifiers.distill_smoke.cases import Place, changes, place
from falsifiers.settings.attempts import assert_named, refusal, toml_file
from falsifiers.settings.cases import ILLEGAL, WRONG_TYPES, variables

UNREADABLE = ["smoke = ", "= 5", "smoke = 5\nsmoke = 6", "smoke = \ud800", "#" * (2**20 + 1)]


def falsify_unusable_files_are_refused(subject: Any) -> None:
    for key in ("batchsize", "batch-size", "temprature", "Smoke"):
        with toml_file(f'"{key}" = 5') as path:
            assert_named(refusal(f"the key {key}", subject.gather, {}, {}, path), repr(key), str(path))
    for text in ("[smoke]\nn = 5", "distill.smoke = 5", *UNREADABLE):
        with toml_file("") as path:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            assert_named(refusal(text[:40], subject.gather, {}, {}, path), str(path))
    for path in (Path("/nowhere/settings.toml"), Path("/")):
        assert_named(refusal(str(path), subject.gather, {}, {}, path), str(path))


def falsify_unknown_variables_are_refused(subject: Any) -> None:
    ours = ("BATCHSIZE", "TEMPRATURE", "batch_size", "CONFIG_FILE")
    theirs = ("MAX_STEP", "LOG_EVRY", "SMOKE_SEQ_LEN")  # the source systems read the last
    for name in (*(f"REFERENCE_TRAINER_{name}" for name in ours), *(f"APR_DISTILL_{name}" for name in theirs)):
        assert_named(refusal(f"the variable {name}", subject.gather, {}, {name: "5"}, None), name)
    others = {"REFERENCE": "5", "APR_DISTILL": "5", "REFERENCE_TRAINERS": "5", "XAPR_DISTILL_MAX_STEPS": "5"}
    found, expected = subject.gather({}, others, None), subject.gather({}, {}, None)
    assert found == expected, f"{others} give the settings {found}; expected {expected}"


def falsify_wrong_values_are_refused(subject: Any) -> None:
    for name, texts in ILLEGAL.items():
        for text in texts:
            flag = f"--{name.replace('_', '-')}"
            assert_named(refusal(f"{flag} {text[:40]!r}", subject.gather, {name: text}, {}, None), flag)
            for variable in variables(name) if text else []:
                what = f"{variable}={text[:40]!r}"
                assert_named(refusal(what, subject.gather, {}, {variable: text}, None), variable)
    for name, text in WRONG_TYPES:
        with toml_file(f"{name} = {text}") as path:
            message = refusal(f"{name} = {text[:40]} in a file", subject.gather, {}, {}, path)
            assert_named(message, repr(name), str(path))


LIBRARY: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["smoke", "max_steps", "batch_size"], (0, -1, 5.0, True, "5")),
    **dict.fromkeys(["temperature", "lr"], (0, -1.0, float("nan"), True, "2.0")),
    "kd_weight": (-1e-9, float("nan"), False, "1"),
    "out": ("", 1, None),
    "epochs": (0, None),
    "seed": (-1, 1.0, True, None),
    "width": (0, 17, 16.0, True),
    "force": (0, "true", None),
    "device": ("gpu", 0, "cuda:x", None),
    "dtype": ("float16", 32),
}
TOGETHER = {"max_steps": 41, "resume": Path("latest"), "rewind": True}
"""Settings that a smoke run excludes."""


def falsify_library_refuses_the_same(subject: Any) -> None:
    """A path may be given as text."""
    taken = subject.Settings(resume="latest", out="there")
    assert (taken.resume, taken.out) == (Path("latest"), Path("there")), f"paths given as text are {taken}"
    for name, values in LIBRARY.items():
        for value in values:
            what = f"Settings({name}=...) of {type(value).__name__}"
            assert_named(refusal(what, subject.Settings, **{name: value}), repr(name))
    for name, value in TOGETHER.items():
        message = refusal(f"smoke with {name}", subject.Settings, smoke=3, **{name: value})
        assert_named(message, "'smoke'", "3", repr(name))
    message = refusal("two weights of 0", subject.Settings, ce_weight=0, kd_weight=0.0)
    assert_named(message, "'ce_weight'", "'kd_weight'")


def falsify_refused_before_anything_is_loaded(subject: Any) -> None:
    """Each origin of N, in a process of its own, which imports its own subject."""
    with place() as where:
        file = where.work / "smoke.toml"
        file.write_text("smoke = 5.0\n")
        _assert_refused_early(where, "--smoke", "--smoke", "0")
        _assert_refused_early(where, "APR_DISTILL_MAX_STEPS", APR_DISTILL_MAX_STEPS="abc")
        _assert_refused_early(where, "REFERENCE_TRAINER_SMOKE", REFERENCE_TRAINER_SMOKE="-1")
        _assert_refused_early(where, str(file), "--config", str(file))


def _assert_refused_early(where: Place, origin: str, *flags: str, **variables: str) -> None:
    given = {**os.environ, **where.environment(**variables)}
    before = where.listing()
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "reference_trainer", "distill", *where.flags(), *flags],
        cwd=where.work,
        env={name: value for name, value in given.items() if value is not None},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    changed = changes(before, where.listing())
    errors = ended.stderr.splitlines()
    complaints = [line for line in errors if not line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in errors if line not in complaints}
    case = f"{origin}, {flags}, {variables}: exit {ended.returncode}, {complaints}"
    assert ended.returncode == 2, f"{case}; expected 2"
    assert len(complaints) == 1 and origin in complaints[0], f"{case}; expected one line"
    assert ended.stdout == "", f"{case}; it printed {ended.stdout}"
    assert "click" in imported, f"{case}; its imports are not known"
    assert "torch" not in imported, f"{case}; torch was imported before the refusal"
    assert not changed, f"{case}; it changed {changed}"
