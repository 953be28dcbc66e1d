"""Attacks on the refusal of settings and its messages.

The subject has `gather`, `Settings` and `SettingError`, as `reference_trainer.config.sources` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from falsifiers.distill_smoke.settings_attempts import assert_said, refusal, shown, toml_file
from falsifiers.distill_smoke.settings_cases import ILLEGAL, WRONG_TYPES, variables


def falsify_unknown_keys_are_refused(subject: Any) -> None:
    """The message suggests a setting with a similar name."""
    meant = {"batchsize": "batch_size", "batch-size": "batch_size", "temprature": "temperature", "smok": "smoke"}
    meant |= {"maxsteps": "max_steps", "SMOKE_": "", "max_step": "max_steps", "Smoke": "smoke", "teacher_step": ""}
    for key, name in meant.items():
        with toml_file(f'"{key}" = 5') as path:
            message = refusal(subject, f"the key {key}", subject.gather, {}, {}, path)
        assert_said(message, repr(key), str(path), f"did you mean {name!r}" if name else "")
    for text in ("[smoke]\nn = 5", "[distill]\nsmoke = 5", "distill.smoke = 5", "[[smoke]]"):
        with toml_file(text) as path:
            assert_said(refusal(subject, text, subject.gather, {}, {}, path), str(path))


KNOWN_ALIASES = ("MAX_STEPS", "LOG_EVERY", "PROJECT_TO_STEPS")


def falsify_unknown_variables_are_refused(subject: Any) -> None:
    """Variables with a prefix of the trainer are refused with a suggestion; all others are ignored."""
    meant = {"BATCHSIZE": "BATCH_SIZE", "TEMPRATURE": "TEMPERATURE", "batch_size": "", "": "", "CONFIG_FILE": "CONFIG"}
    for name, hint in meant.items():
        name = f"REFERENCE_TRAINER_{name}"
        message = refusal(subject, f"the variable {name}", subject.gather, {}, {name: "5"}, None)
        assert_said(message, name, f"did you mean REFERENCE_TRAINER_{hint}" if hint else "")
    for name, hint in {"MAX_STEP": "MAX_STEPS", "LOG_EVRY": "LOG_EVERY", "PROJECT_TO_STEP": "PROJECT_TO_STEPS"}.items():
        name = f"APR_DISTILL_{name}"
        message = refusal(subject, f"the variable {name}", subject.gather, {}, {name: "5"}, None)
        assert_said(message, name, f"did you mean APR_DISTILL_{hint}?")
    for name in ("CHECKPOINT_EVERY", "SMOKE_SEQ_LEN", "LOSS", ""):  # the source systems read the first two
        message = refusal(subject, f"APR_DISTILL_{name}", subject.gather, {}, {f"APR_DISTILL_{name}": "5"}, None)
        assert_said(message, f"APR_DISTILL_{name}", *(f"APR_DISTILL_{known}" for known in KNOWN_ALIASES))
    others = {"REFERENCE": "5", "APR_DISTILL": "5", "REFERENCE_TRAINERS": "5", "XAPR_DISTILL_MAX_STEPS": "5"}
    assert subject.gather({}, others, None) == subject.gather({}, {}, None), f"{others} changed the settings"


def falsify_wrong_values_are_refused(subject: Any) -> None:
    """For every setting, from flag, variables and file: the message has origin, value and allowed values."""
    for name, (allowed, texts) in ILLEGAL.items():
        for text in texts:
            message = refusal(subject, f"--{name} {text!r}", subject.gather, {name: text}, {}, None)
            assert_said(message, f" for --{name.replace('_', '-')}: expected ", shown(text), allowed)
            for variable in variables(name) if text else []:
                what = f"{variable}={text!r}"
                message = refusal(subject, what, subject.gather, {}, {variable: text}, None)
                assert_said(message, f" for {variable}: expected ", shown(text), allowed)
    for name, text, allowed in WRONG_TYPES:
        with toml_file(f"{name} = {text}") as path:
            message = refusal(subject, f"{name} = {text}", subject.gather, {}, {}, path)
            assert_said(message, f" for '{name}' in {path}: expected ", allowed)


LARGEST = 2**20


def falsify_unreadable_files_are_refused(subject: Any) -> None:
    """A missing file, a directory and invalid TOML are refused by name."""
    cases = ["smoke", "smoke = ", "= 5", "smoke = 5\nsmoke = 6", "smoke = \ud800", f"smoke = 1{'0' * 5000}"]
    cases += ["smoke = " + "[" * 5000]
    for text in cases:
        with toml_file("") as path:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            message = refusal(subject, text[:40], subject.gather, {}, {}, path)
            assert_said(message, str(path))
    with toml_file("#" * LARGEST) as path:
        assert subject.gather({}, {}, path) == subject.gather({}, {}, None), "a comment changed the settings"
    with toml_file("#" * (LARGEST + 1)) as path:
        assert_said(refusal(subject, "a huge file", subject.gather, {}, {}, path), f"{path} has more than 1,048,576 ")
    for path in (Path("/nowhere/settings.toml"), Path("/")):
        assert_said(refusal(subject, str(path), subject.gather, {}, {}, path), str(path))


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
    """`Settings` refuses the values that every origin refuses, with name, value and allowed values."""
    for name, values in LIBRARY.items():
        for value in values:
            what = f"Settings({name}=...) of {type(value).__name__}"
            message = refusal(subject, what, subject.Settings, **{name: value})
            assert_said(message, f" for '{name}': expected ", BEYOND if value == 10**5000 else shown(value))
    for name in ("epochs", "out", "seed", "force", "device"):
        refusal(subject, f"Settings({name}=None)", subject.Settings, **{name: None})
    message = refusal(subject, "smoke with max_steps", subject.Settings, smoke=3, max_steps=41)
    assert_said(message, "'smoke' is 3", "'max_steps' is 41")
    refusal(subject, "two weights of 0", subject.Settings, ce_weight=0, kd_weight=0.0)
