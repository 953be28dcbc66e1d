"""Attacks on the refusal of settings. The subject has `gather`, as `config.sources` does, or `Settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from falsifiers.settings.attempts import assert_named, refusal, toml_file
from falsifiers.settings.cases import ILLEGAL, WRONG_TYPES, variables


def falsify_unknown_keys_are_refused(subject: Any) -> None:
    for key in ("batchsize", "batch-size", "temprature", "smok", "maxsteps", "SMOKE_", "max_step", "Smoke"):
        with toml_file(f'"{key}" = 5') as path:
            assert_named(refusal(f"the key {key}", subject.gather, {}, {}, path), repr(key), str(path))
    for text in ("[smoke]\nn = 5", "[distill]\nsmoke = 5", "distill.smoke = 5", "[[smoke]]"):
        with toml_file(text) as path:
            assert_named(refusal(text, subject.gather, {}, {}, path), str(path))


def falsify_unknown_variables_are_refused(subject: Any) -> None:
    ours = ("BATCHSIZE", "TEMPRATURE", "batch_size", "", "CONFIG_FILE")
    theirs = (
        "MAX_STEP",
        "LOG_EVRY",
        "LOSS",
        "",
        "SMOKE_SEQ_LEN",
    )  # the source systems read the last
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


LARGEST = 2**20


def falsify_unreadable_files_are_refused(subject: Any) -> None:
    cases = ["smoke", "smoke = ", "= 5", "smoke = 5\nsmoke = 6", "smoke = \ud800", f"smoke = 1{'0' * 5000}"]
    cases += ["smoke = " + "[" * 5000, "#" * (LARGEST + 1)]
    for text in cases:
        with toml_file("") as path:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            assert_named(refusal(text[:40], subject.gather, {}, {}, path), str(path))
    with toml_file("#" * LARGEST) as path:
        found = subject.gather({}, {}, path)
    assert found == subject.gather({}, {}, None), f"a comment changed the settings: {found}"
    for path in (Path("/nowhere/settings.toml"), Path("/")):
        assert_named(refusal(str(path), subject.gather, {}, {}, path), str(path))


LIBRARY: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["smoke", "max_steps", "batch_size", "project_to_steps"], (0, -1, 5.0, True, "5", [5], 10**18)),
    **dict.fromkeys(["temperature", "lr"], (0, -1.0, float("nan"), float("inf"), True, "2.0", 1j)),
    **dict.fromkeys(["ce_weight", "kd_weight"], (-1e-9, float("nan"), 2e30, False, "1")),
    **dict.fromkeys(["data", "teacher"], ("", 1, b"bytes", Path("a\0b"), "a\0b")),
    "out": ("", 1, b"bytes", Path("a\0b"), "a\0b", None),
    "epochs": (0, None),
    "seed": (-1, 1.0, True, 10**18, 10**5000, None),
    "width": (0, 15, 17, 16.0, 65552, True),
    "force": (0, 1, "true", None),
    "best_mode": ("Min", 1, None),
    "device": ("gpu", 0, "cuda:x", None),
    "dtype": ("float16", 32),
}


def falsify_library_refuses_the_same(subject: Any) -> None:
    """`Settings` refuses the values that every origin refuses, and settings that exclude each other, by name.

    A path may be given as text, as every origin gives it.
    """
    taken = subject.Settings(resume="latest", out="there")
    assert (taken.resume, taken.out) == (Path("latest"), Path("there")), f"paths given as text are {taken}"
    for name, values in LIBRARY.items():
        for value in values:
            what = f"Settings({name}=...) of {type(value).__name__}"
            assert_named(refusal(what, subject.Settings, **{name: value}), repr(name))
    message = refusal("smoke with max_steps", subject.Settings, smoke=3, max_steps=41)
    assert_named(message, "'smoke'", "3", "'max_steps'", "41")
    message = refusal("smoke with resume", subject.Settings, smoke=3, resume=Path("latest"))
    assert_named(message, "'smoke'", "3", "'resume'", "latest")
    message = refusal("smoke with rewind", subject.Settings, smoke=3, rewind=True)
    assert_named(message, "'smoke'", "3", "'rewind'")
    message = refusal("two weights of 0", subject.Settings, ce_weight=0, kd_weight=0.0)
    assert_named(message, "'ce_weight'", "'kd_weight'")
