"""Attacks on the settings of a run: the precedence of flag, environment variable, file and default, and refusals.

Refused are invalid values, unknown keys and variables, unusable files, and settings that exclude each other. The
subjects are `config.sources`, `config.settings`, `callbacks.loggers` and the command line.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, changes, invoked, place
from falsifiers.support import assertions
from falsifiers.support.oracles import DIVERGENCES
from reference_trainer.config.kinds import LOGGERS
from reference_trainer.config.settings import FIELDS, Settings
from reference_trainer.errors import PackageError, SettingError

COUNTS = [3, 5, 7, 11]
FEATURES = {"feature_weight": 1.0}
PRETRAINED: dict[str, Any] = {"student": Path("s"), "data": Path("d")}
UNUSED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"lr_end": 0.0, "schedule": "constant"}, {"lr_end"}),
    ({"lr_end": 0.0}, set()),
    ({"data_cache_gib": 0, "lora": 4}, {"data_cache_gib", "lora"}),
    ({"data_cache_gib": 0, "lora": 4, **PRETRAINED}, set()),
    ({"feature_distance": "l2", **FEATURES}, set()),
    ({"log_to": "wandb", "smoke": 2}, {"log_to"}),
    ({"log_to": "wandb"}, set()),
    ({"group_by_length": True}, {"group_by_length"}),
    ({"group_by_length": True, **PRETRAINED}, set()),
    ({"group_by_length": True, "documents": "pack", **PRETRAINED}, {"group_by_length"}),
    ({"answer_tokens": 9, "on_policy_end": 0.5, "anneal": "cosine", **PRETRAINED}, set()),
    ({"divergence": "reverse_kl", "cross_tokenizer": True}, {"cross_tokenizer"}),
    ({"divergence": "reverse_kl", "cross_tokenizer": True, **PRETRAINED}, {"divergence"}),
    ({"anneal_warmup": 2, "temperature_end": 2.0, "anneal": "cosine"}, {"anneal_warmup"}),
    ({"anneal_warmup": 2, "kd_weight": 0.0, "ce_weight_end": 1.0}, set()),
    ({"accept_depth": 2, "cross_tokenizer": True, **PRETRAINED}, {"accept_depth"}),
    ({"group_by_length": True, "mix": "{}", **PRETRAINED}, {"group_by_length"}),
    ({"teacher_steps": 4, "teacher_outputs": Path("t")}, {"teacher_steps"}),
    ({"teacher_layers": 2, "data": Path("d")}, set()),
]
"""Settings of a run, and the names of the settings that have no effect in it."""
PATHS = ["first", "/second/path", "a third", "."]
NUMBERS = [0.5, 1.25, 3, 1e-2]
SMALL_COUNTS, SIZES, SCALES = [0, 1, 2, 3], [16, 32, 48, 65536], [0.0001, 1.5, 3, 10000]
SWITCHES = (
    "force rewind checkpoint_activations lora_merge shard_teacher group_by_length skip_invalid_rows trust_remote_code "
    "compile cross_tokenizer"
)


def same_for(names: str, values: list[Any]) -> dict[str, list[Any]]:
    """Return a dictionary with the same values for each setting; `names` are separated by spaces."""
    return dict.fromkeys(names.split(), values)


VALID: dict[str, list[Any]] = {
    **same_for("data out trace callbacks teacher student teacher_cache init_from teacher_outputs", PATHS),
    **same_for("data_cache chat_template eval_data", PATHS),
    **same_for("teacher_steps teacher_layers layers batch_size accumulate lr_decay lora", COUNTS),
    **same_for("max_steps smoke rank_timeout project_to_steps threads answer_tokens teacher_top_k", COUNTS),
    **same_for("log_every anneal_warmup save_every eval_every accept_depth data_cache_gib data_workers", SMALL_COUNTS),
    **same_for("ce_weight kd_weight feature_weight best_min_delta", NUMBERS),
    **same_for("ce_weight_end kd_weight_end feature_weight_end", NUMBERS),
    **same_for("temperature temperature_end answer_temperature", SCALES),
    **same_for("teacher_width width", SIZES),
    **same_for(SWITCHES, [True, False]),
    **same_for("lr_end beta on_policy on_policy_end", [0, 0.25, 0.75, 1]),
    "eval_rows": SMALL_COUNTS,
    "warmup": [0, 3, 0.03, 0.5],
    "length": [2, 17, 33, 10**18 - 1],
    "epochs": [1, 2, 3, 4],
    "lr": [0.5, 1e-6, 1000000, 0.25],
    "seed": [1, 2, 3, 10**18 - 1],
    "device": ["cpu", "cuda", "cuda:1", "cuda:17"],
    "dtype": ["float64", "bfloat16", "float32"],
    "weights": ["bfloat16", "float32"],
    "strategy": ["fsdp2", "ddp"],
    "teacher_device_map": ["auto", "balanced", "cpu", "é"],
    "teacher_url": ["http://localhost:8000", "https://a.b/v1", "é"],
    "served_model": ["a", "a/b", "é"],
    "clip": [0.5, 1e-6, 1e30, 3],
    "divergence": sorted(DIVERGENCES, reverse=True),
    **same_for("data_share answer_top_p", [0.5, 1, 1e-6, 0.125]),
    "schedule": ["linear", "constant", "wsd", "cosine"],
    "anneal": ["cosine", "linear"],
    "parts": ["a:B", "mine.models:Mine", "c.d:E.F"],
    "lora_options": ["{}", '{"lora_alpha": 4}', '{"target_modules": ["q"]}'],
    "mix": ['{"b.jsonl": 2}', '{"b/*.jsonl": 0.5, "é": 1}', "{}"],
    **same_for("revision teacher_revision attn_implementation", ["main", "eager", "v1.0", "é"]),
    **same_for("optimizer_options quantization", ["{}", '{"bits": 4}', '{"betas": [0.9, 0.95]}']),
    "optimizer": ["adafactor", "torch.optim:SGD", "adamw"],
    "layer_decay": [0.5, 1, 1e-6, 0.125],
    "log_to": ["wandb", "tensorboard,mlflow", "mlflow"],
    "turns": ["last", "every"],
    "template_options": ["{}", '{"enable_thinking": false}', '{"é": null}'],
    "arguments": ["{}", '{"a": [1]}', '{"é": null}'],
    "documents": ["pad", "pack"],
    "separator": ["--", "\n", "a b", "é"],
    "share_vocabulary": ["truncate", "truncate-student", "pad"],
    "feature_distance": ["l2", "cosine"],
    "feature_layers": ["0:0", "-1:-1,0:2", "1:-2", "3:3,3:3"],
    "keep": [0, 1, 2, 3000],
    "best_metric": ["eval/hard_loss", "eval/agreement", "a b", "x"],
    "best_mode": ["max", "min"],
    "resume": ["latest", "a checkpoint", "/second/path", "."],
    "hang_after": [0.0, 0.5, 30, 1e6, 1800.5],
}
"""Values that are accepted, for each setting."""
NEED_STUDENT, NEED_OTHERS = (
    "attn_implementation chat_template checkpoint_activations compile data_cache data_cache_gib data_workers eval_data "
    "eval_rows lora mix on_policy revision skip_invalid_rows teacher_device_map teacher_url template_options "
    "trust_remote_code turns weights",
    "anneal anneal_warmup answer_temperature answer_tokens answer_top_p arguments best_metric best_min_delta best_mode "
    "beta feature_distance feature_layers lora_merge lora_options lr_decay served_model teacher_top_k",
)
"""Settings that need only `student` to have an effect, and settings that need others than `student`."""


def _unused(names: str, expected: bool, **others: Any) -> list[tuple[dict[str, Any], set[str]]]:
    """Return cases of `UNUSED`, each with one of the settings and `others`."""
    values = {name: next(v for v in VALID[name] if v != FIELDS[name].default) for name in names.split()}
    return [({name: value, **others}, {name} if expected else set()) for name, value in values.items()]


UNUSED += _unused(f"{NEED_STUDENT} {NEED_OTHERS} teacher_cache teacher_layers teacher_width separator", True)
UNUSED += _unused(NEED_STUDENT, False, **PRETRAINED)
UNUSED += _unused(f"{NEED_OTHERS} data_share layers width quantization teacher_revision", True, **PRETRAINED)
UNUSED += _unused("teacher_steps teacher_layers teacher_cache teacher_width", True, teacher=Path("t"))
NAMES: dict[str, str] = {
    "data": "path=data share=data_share mix length documents group_by_length separator batch_size turns chat_template "
    "template_options skip_invalid_rows workers=data_workers cache=data_cache cache_gib=data_cache_gib",
    "student": "model=student revision layers width init_from weights lora lora_options lora_merge "
    "checkpoint_activations",
    "teacher": "model=teacher revision=teacher_revision quantization outputs=teacher_outputs url=teacher_url "
    "served_model top_k=teacher_top_k share_vocabulary cross_tokenizer shard=shard_teacher steps=teacher_steps "
    "device_map=teacher_device_map layers=teacher_layers width=teacher_width cache=teacher_cache",
    "objective": "temperature temperature_end ce_weight ce_weight_end kd_weight kd_weight_end divergence beta "
    "feature_weight feature_weight_end feature_distance feature_layers on_policy on_policy_end answer_tokens "
    "answer_temperature answer_top_p anneal anneal_warmup",
    "optimizer": "name=optimizer options=optimizer_options lr layer_decay clip accumulate",
    "schedule": "epochs max_steps warmup shape=schedule lr_end lr_decay",
    "checkpoints": "save_every keep resume rewind",
    "evaluation": "data=eval_data rows=eval_rows every=eval_every accept_depth best_metric best_mode best_min_delta",
    "run": "out force trace callbacks parts arguments trust_remote_code attn_implementation compile log_to seed device "
    "dtype threads strategy rank_timeout hang_after log_every smoke project_to_steps",
}
"""The settings of each group, as `name` or `name=flat_name` if both differ. Renaming one breaks users' commands."""
GROUPED = {
    flat or leaf: (group, leaf)
    for group, names in NAMES.items()
    for leaf, _, flat in (name.partition("=") for name in names.split())
}
"""The group of each setting and its name in the group, by its flat name."""
PATH_SETTINGS = [name for name, values in VALID.items() if values is PATHS or name == "resume"]
ALIASES = {
    "smoke": "APR_DISTILL_MAX_STEPS",
    "log_every": "APR_DISTILL_LOG_EVERY",
    "project_to_steps": "APR_DISTILL_PROJECT_TO_STEPS",
    "save_every": "APR_DISTILL_CHECKPOINT_EVERY",
}

INVALID_COUNTS = ["0", "-1", "+5", "1.5", "1e3", "abc", " 5 ", "5\n", "٣"]
INVALID_COUNTS += ["0x10", "1_000", "nan", "True", "None", "9" * 19]
INVALID_COUNTS_IN_TOML = ["0", "-1", "5.0", "true", '"5"', '""', "[5]", "nan", "1" + "0" * 19]
INVALID_NUMBERS = ["-0.5", "nan", "inf", "1e999", "-inf", "abc", " 1", "1_0", "0x1", "1,5"]
INVALID_DTYPES, INVALID_OBJECTS = ["float16", "bf16", "torch.float32"], ["", "a", "[1]", "null"]
TEXTS = (
    "best_metric teacher_device_map separator teacher_url served_model revision teacher_revision attn_implementation"
)
ALLOW_ZERO = (
    "warmup seed log_every anneal_warmup save_every keep eval_every accept_depth data_cache_gib eval_rows data_workers"
)
INVALID: dict[str, list[str]] = {
    **{name: INVALID_COUNTS for name, values in VALID.items() if values is COUNTS or name == "epochs"},
    **{name: [""] for name in [*PATH_SETTINGS, *TEXTS.split()]},
    **same_for(ALLOW_ZERO, INVALID_COUNTS[1:]),
    **same_for("teacher_width width", [*INVALID_COUNTS, "17", "8", "65552"]),
    **{name: [*INVALID_NUMBERS, "1.1e30"] for name, values in VALID.items() if values is NUMBERS},
    **same_for("temperature temperature_end answer_temperature", [*INVALID_NUMBERS, "0", "0.00009", "10001"]),
    **same_for("beta lr_end on_policy on_policy_end", [*INVALID_NUMBERS, "1.01"]),
    **same_for("lora_options template_options mix optimizer_options quantization", INVALID_OBJECTS),
    **same_for(SWITCHES, ["yes", "True", "2", "on"]),
    "best_mode": ["Min", "lowest", "min "],
    "parts": ["", "a", "a.b", "a:b:c", ":B", "a:", "a-b:C", "a/b.py:C"],
    "optimizer": ["", "adam", "AdamW", "torch.optim.SGD"],
    "log_to": ["", "Wandb", "wandb,", "wandb, mlflow", "comet"],
    "turns": ["Last", "all", "every "],
    "arguments": [*INVALID_OBJECTS, "3", "{'a': 1}"],
    "documents": ["Pad", "packed", "none", "pad "],
    "share_vocabulary": ["Truncate", "truncate_student", "cut", "pad "],
    "feature_distance": ["cos", "L2", "mse", "l2 "],
    "feature_layers": ["", "0", "0:", "0:0,", "0:0;1:1", "a:b", "0:1:2"],
    "length": [*INVALID_COUNTS, "1"],
    "clip": [*INVALID_NUMBERS, "0", "-0", "1.1e30"],
    **same_for("data_share answer_top_p layer_decay", [*INVALID_NUMBERS, "0", "1.01"]),
    "schedule": ["Cosine", "step", "wsd ", "warmup_stable_decay"],
    "divergence": ["kl", "Forward_KL", "jsd", "forward_kl "],
    "anneal": ["constant", "Linear", "cos"],
    "strategy": ["DDP", "fsdp", "fsdp2 ", "zero"],
    "lr": [*INVALID_NUMBERS, "0", "-0", "1e-400", "1000001"],
    "hang_after": [*INVALID_NUMBERS, "-1", "1000001"],
    "device": ["gpu", "CPU", "cuda:x", "cuda:-1", "mps"],
    "dtype": INVALID_DTYPES,
    "weights": [*INVALID_DTYPES, "float64"],
}
"""Texts that are refused, for each setting."""
WRONG_IN_TOML: list[tuple[str, str]] = [
    *(("smoke", text) for text in INVALID_COUNTS_IN_TOML),
    *(("temperature", text) for text in ("true", '"2.0"', "nan", "0", "[2.0]")),
    *(("force", text) for text in ("1", '"true"')),
    *(("out", text) for text in ("1", "true", '["a"]', '""')),
    *(("device", text) for text in ("0", '"gpu"')),
    *(("dtype", text) for text in ("32", '"half"')),
]
"""A setting and a value in TOML that is refused."""
WRONG_IN_YAML = [
    *(
        ("smoke", text)
        for text in ("0", "-1", "5.0", "true", '"5"', '""', "[5]", ".nan", "0x5", "1_0", "5 6", "!!int 0")
    ),
    *(("epochs", text) for text in ("", "~", "null")),
    *(("temperature", text) for text in ("true", '"2.0"', ".nan", "0", "[2.0]", ".inf")),
    *(("force", text) for text in ("yes", '"true"', "on")),
    *(("out", text) for text in ('""', "[a]")),
]
"""A setting and a value in YAML that is refused."""


def variables(name: str) -> list[str]:
    """Return the variables of a setting, in order of precedence."""
    return [f"REFERENCE_TRAINER_{name.upper()}", *filter(None, [ALIASES.get(name)])]


def as_text(value: Any) -> str:
    """Return a value as the text of a flag or variable."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def as_toml(values: dict[str, Any]) -> str:
    """Return a flat settings file in TOML."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def as_yaml(value: Any) -> str:
    """Return a value as YAML; a text is quoted unless it has only letters, digits and underscores."""
    return value if isinstance(value, str) and value.replace("_", "").isalnum() else json.dumps(value)


@contextmanager
def settings_file(text: str, name: str = "settings.toml") -> Iterator[Path]:
    """Yield the path of a temporary settings file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_text(text, encoding="utf-8")
        yield path


def origins_of(name: str) -> list[str]:
    """Return the origins of a setting, in order of precedence."""
    return ["flag", *variables(name), "file"]


def start_runs(subject: Any, sandbox: Place, *arguments: str, **environment: str) -> tuple[list[Any], Any]:
    """Return the settings of the runs that the command line starts, and its click result; nothing is trained."""
    runs: list[Any] = []

    def run(settings: Any, **options: Any) -> None:
        runs.append(settings)
        raise SystemExit(0)

    return runs, invoked(subject, sandbox, *arguments, run=run, **environment)


def refusal(case: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """Return the message of the `SettingError` of a call; assert that the call raises it."""
    try:
        accepted = function(*arguments, **settings)
    except SettingError as error:
        return str(error)
    raise AssertionError(f"{case} is accepted and returns {accepted}; expected a SettingError")


def assert_contains(message: str, *parts: str) -> None:
    """Assert that the message of a refusal contains these names and values."""
    for part in parts:
        assert part in message, f"the message of the refusal is {message[:300]!r}; expected it to contain {part!r}"


def is_value(name: str, value: Any, expected: Any) -> bool:
    """Return whether two values of a setting are equal; True and 1 are not, and a path equals its text."""
    expected = Path(expected) if name in PATH_SETTINGS and expected is not None else expected
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


@dataclass(frozen=True)
class Origins:
    """Values of flags, variables and file, and the expected settings."""

    flags: dict[str, str]
    environment: dict[str, str]
    file: dict[str, Any]
    expected: dict[str, Any]


@st.composite
def origins(draw: st.DrawFn) -> Origins:
    """Draw settings with one origin or more; the first origin in order of precedence has a value of its own."""
    name = st.sampled_from(sorted(ALIASES)) | st.sampled_from(sorted(VALID))  # draws settings with two variables often
    names = draw(st.sets(name, min_size=1, max_size=6))
    drawn = Origins({}, {}, {}, {})
    names -= {"max_steps", "resume", "rewind"} if "smoke" in names else set()
    for name in sorted(names):
        first, *overridden = sorted(
            draw(st.lists(st.sampled_from(origins_of(name)), min_size=1, unique=True)), key=origins_of(name).index
        )
        drawn.expected[name] = draw(st.sampled_from(VALID[name]))
        other = draw(st.sampled_from([value for value in VALID[name] if value != drawn.expected[name]]))
        values = {first: drawn.expected[name], **dict.fromkeys(overridden, other)}
        if "flag" in values:
            drawn.flags[name] = as_text(values["flag"])
        if "file" in values:
            drawn.file[name] = values["file"]
        for variable in variables(name):
            if variable in values or draw(st.booleans()):
                drawn.environment[variable] = as_text(values[variable]) if variable in values else ""
    return drawn


@given(drawn=origins(), by_variable=st.booleans())
def falsify_precedence_of_origins(subject: Any, drawn: Origins, by_variable: bool) -> None:
    with settings_file(as_toml(drawn.file)) as path:
        # --config precedes REFERENCE_TRAINER_CONFIG, whose file then need not exist.
        environment = drawn.environment | {"REFERENCE_TRAINER_CONFIG": str(path) if by_variable else "/nowhere.toml"}
        settings = subject.gather(drawn.flags, environment, None if by_variable else path)
    for name, default in Settings().flat().items():
        value, expected = settings.flat()[name], drawn.expected.get(name, default)
        assert is_value(name, value, expected), f"{name} is {value!r}; expected {expected!r}, for {drawn}"


def falsify_every_setting_has_flags_variable_and_keys(subject: Any) -> None:
    """Set each setting by every flag, variable and key, flat or in its group, in TOML and in YAML."""
    for keys in (VALID.keys(), GROUPED.keys()):
        assert FIELDS.keys() == keys, f"the trainer has the settings {sorted(FIELDS)}; expected {sorted(keys)}"
    with place() as sandbox:
        for name, (value, *_) in VALID.items():
            group, leaf = GROUPED[name]
            files = {
                "flat.toml": as_toml({name: value}),
                "table.toml": f"[{group}]\n{as_toml({leaf: value})}",
                "flat.yaml": f"{name}: {as_yaml(value)}\n",
                "table.yml": f"{group}:\n  {leaf}: {as_yaml(value)}\n",
            }
            for file, text in files.items():
                (sandbox.root / file).write_text(text, encoding="utf-8")
            flags = [f"--{flag.replace('_', '-')}" for flag in (name, f"{group}.{leaf}")]
            calls: list[tuple[list[str], dict[str, str]]] = [
                *(([flag] if value is True else [flag, as_text(value)], {}) for flag in flags),
                *(([], {variable: as_text(value)}) for variable in variables(name)),
                *((["--config", str(sandbox.root / file)], {}) for file in files),
            ]
            for arguments, environment in calls:
                case = f"{name} = {value!r} by {arguments or environment}"
                runs, result = start_runs(subject, sandbox, *arguments, **environment)
                assert len(runs) == 1, f"{case}: {len(runs)} runs, expected 1; {result.exit_code=}, {result.output}"
                actual = runs[0].flat(chosen=True)
                assert actual.keys() == {name} and is_value(name, actual[name], value), f"{case} sets {actual}"


def falsify_keywords_may_be_flat_or_grouped(subject: Any) -> None:
    """Give each setting to `Settings` as a keyword, a mapping and a group. The subject is `config.settings`."""
    for name, (value, *_) in VALID.items():
        group, leaf = GROUPED[name]
        kind = type(getattr(subject.Settings(), group))
        ways: dict[str, Callable[[], Any]] = {
            "a flat keyword": partial(subject.Settings, **{name: value}),
            "a dotted keyword": partial(subject.Settings, **{f"{group}.{leaf}": value}),
            "a mapping": partial(subject.Settings, **{group: {leaf: value}}),
            "a group": partial(
                lambda kind, group, leaf, value: subject.Settings(**{group: kind(**{leaf: value})}),
                kind,
                group,
                leaf,
                value,
            ),
            "model_validate": partial(subject.Settings.model_validate, {group: {leaf: value}}),
            "replace": partial(subject.Settings().replace, **{name: value}),
            "model_copy": partial(subject.Settings().model_copy, update={name: value}),
        }
        if value == "{}":  # a setting that is a JSON object
            ways["a dict"] = partial(subject.Settings, **{name: json.loads(value)})
        for way, make in ways.items():
            result, case = make(), f"{name} = {value!r} by {way}"
            chosen = result.flat(chosen=True)
            assert chosen.keys() == {name} and is_value(name, chosen[name], value), f"{case} sets {chosen}"
            actual = getattr(getattr(result, group), leaf)
            assert is_value(name, actual, value), f"{case} gives {group}.{leaf} = {actual!r}"
            # Compare all other settings with their defaults.
            others, defaults = ({**settings.flat(), name: None} for settings in (result, subject.Settings()))
            assert others == defaults, f"{case}: the other settings are {others}; expected {defaults}"
        if name not in NAMES:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                actual = getattr(result, name)
            messages = [str(warning.message) for warning in warned if warning.category is DeprecationWarning]
            assert is_value(name, actual, value), f"settings.{name} is {actual!r}; expected {value!r}"
            case = f"reading settings.{name} warns {messages}; expected one warning that names {group}.{leaf}"
            assert len(messages) == 1 and f"{group}.{leaf}" in messages[0], case


def falsify_settings_named_twice_are_refused(subject: Any) -> None:
    """Give a setting its value by its flat and its dotted name at one origin. The subject is `config.sources`."""
    for name, (value, *_) in VALID.items():
        group, leaf = GROUPED[name]
        dotted, text = f"{group}.{leaf}", as_text(value)
        flags = [f"--{flag.replace('_', '-')}" for flag in (name, dotted)]
        assert_contains(refusal(f"{flags}", subject.gather, {name: text, dotted: text}, {}, None), *flags)
        message = refusal(f"{name} and {dotted}", subject.Settings, **{name: value, dotted: value})
        assert_contains(message, repr(name), repr(dotted))
        if name in NAMES:  # a file cannot have a key and a table of the same name
            continue
        twice = {
            "twice.toml": f"{as_toml({name: value})}[{group}]\n{as_toml({leaf: value})}",
            "twice.yaml": f"{group}: {{{leaf}: {as_yaml(value)}}}\n{name}: {as_yaml(value)}\n",
        }
        for file, content in twice.items():
            with settings_file(content, file) as path:
                assert_contains(refusal(content, subject.gather, {}, {}, path), repr(name), repr(dotted), str(path))
        message = refusal(f"{name} and {group}", subject.Settings, **{name: value, group: {leaf: value}})
        assert_contains(message, repr(name), repr(dotted))


def falsify_empty_flags_are_refused(subject: Any) -> None:
    """Refuse `--lr ""`, which the shell makes of `--lr "$LR"` if LR is unset. The subject is the command line."""
    flags = [f"--{name.replace('_', '-')}" for name in VALID if name not in SWITCHES.split()]
    with place() as sandbox:
        for flag in (*flags, "--config"):
            runs, result = start_runs(subject, sandbox, flag, "", REFERENCE_TRAINER_LR="0.1")
            case = f"{flag} '': exit code {result.exit_code}, {result.output!r}"
            assert result.exit_code == 2 and not runs, f"{case}, {len(runs)} runs; expected exit code 2 and no run"
            assert flag in result.output, f"{case}; expected the name of the flag in the output"


INVALID_YAML = ["smoke: [", "- smoke", "5", "smoke: 5\nsmoke: 5", "? [smoke]\n: 5", "smoke: {n: 5}", "objective: 5"]
INVALID_YAML += ["smoke: 5\n lr: 1", "objective: {beta: 0.5, beta: 0.5}", "#" * (2**20 + 1)]
INVALID_TOML = ["smoke = ", "= 5", "smoke = 5\nsmoke = 6", "smoke = \ud800", "#" * (2**20 + 1)]


def falsify_unusable_files_are_refused(subject: Any) -> None:
    for key in ("batchsize", "batch-size", "temprature", "Smoke", "data.batchsize", "run.lr"):
        group, _, leaf = key.rpartition(".")
        for name, text in (
            ("unknown.toml", f'[{group}]\n"{leaf}" = 5' if group else f'"{key}" = 5'),
            ("unknown.yaml", f"{group}: {{{leaf}: 5}}" if group else f"{key}: 5"),
        ):
            with settings_file(text, name) as path:
                assert_contains(refusal(f"the key {key}", subject.gather, {}, {}, path), repr(key), str(path))
    for text in INVALID_YAML:
        with settings_file(text, "wrong.yaml") as path:
            assert_contains(refusal(text[:40], subject.gather, {}, {}, path), str(path))
    for text in ("[smoke]\nn = 5", "distill.smoke = 5", *INVALID_TOML):
        with settings_file("") as path:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            assert_contains(refusal(text[:40], subject.gather, {}, {}, path), str(path))
    for path in (Path("/nowhere/settings.toml"), Path("/")):
        assert_contains(refusal(str(path), subject.gather, {}, {}, path), str(path))


def falsify_unknown_variables_are_refused(subject: Any) -> None:
    unknown = [f"REFERENCE_TRAINER_{name}" for name in ("BATCHSIZE", "TEMPRATURE", "batch_size", "CONFIG_FILE")]
    # aprender reads SMOKE_SEQ_LEN, this trainer does not.
    unknown += [f"APR_DISTILL_{name}" for name in ("MAX_STEP", "LOG_EVRY", "SMOKE_SEQ_LEN")]
    for name in unknown:
        assert_contains(refusal(f"the variable {name}", subject.gather, {}, {name: "5"}, None), name)
    unrelated = {"REFERENCE": "5", "APR_DISTILL": "5", "REFERENCE_TRAINERS": "5", "XAPR_DISTILL_MAX_STEPS": "5"}
    actual, expected = subject.gather({}, unrelated, None), subject.gather({}, {}, None)
    assert actual == expected, f"with {unrelated}, the settings are {actual}; expected {expected}"


def falsify_wrong_values_are_refused(subject: Any) -> None:
    for name, texts in INVALID.items():
        for text in texts:
            flag = f"--{name.replace('_', '-')}"
            dotted = ".".join(GROUPED[name])
            for key, expected in ((name, flag), (dotted, f"--{dotted.replace('_', '-')}")):
                message = refusal(f"{expected} {text[:40]!r}", subject.gather, {key: text}, {}, None)
                assert_contains(message, f"{expected}:")
            for variable in variables(name) if text else []:
                label = f"{variable}={text[:40]!r}"
                assert_contains(refusal(label, subject.gather, {}, {variable: text}, None), variable)
    for name, text in WRONG_IN_TOML:
        with settings_file(f"{name} = {text}") as path:
            message = refusal(f"{name} = {text[:40]} in a file", subject.gather, {}, {}, path)
            assert_contains(message, repr(name), str(path))
        with settings_file(f"{'.'.join(GROUPED[name])} = {text}") as path:
            message = refusal(f"{name} = {text[:40]} in a table of a file", subject.gather, {}, {}, path)
            assert_contains(message, repr(".".join(GROUPED[name])), str(path))
    for name, text in WRONG_IN_YAML:
        with settings_file(f"{name}: {text}", "wrong.yaml") as path:
            message = refusal(f"{name}: {text} in a file", subject.gather, {}, {}, path)
            assert_contains(message, repr(name), str(path))


WRONG_KEYWORDS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["smoke", "max_steps", "batch_size", "width"], (5.0, True, "5")),
    **dict.fromkeys(["temperature", "lr", "kd_weight"], (float("nan"), True, "2.0")),
    **dict.fromkeys(["out", "epochs", "seed", "force", "device"], (None, 0.0)),
    "dtype": (32,),
}
EXCLUDED_BY_SMOKE = {"max_steps": 41, "resume": Path("latest"), "rewind": True}
"""Settings that `smoke` excludes."""


def falsify_library_refuses_the_same(subject: Any) -> None:
    """Refuse in `Settings(...)` what flags and files refuse; a path may be given as text."""
    settings = subject.Settings(resume="latest", out="there")
    paths = settings.checkpoints.resume, settings.run.out
    assertions.assert_equal("resume and out of Settings", paths, (Path("latest"), Path("there")))
    for name, values in WRONG_KEYWORDS.items():
        for value in values:
            label = f"Settings({name}={value!r})"
            assert_contains(refusal(label, subject.Settings, **{name: value}), repr(name))
    for name, texts in INVALID.items():  # the text itself, and the number that it is
        for text in texts:
            for value in (text, *([json.loads(text)] if re.fullmatch(r"-?\d+(\.\d+)?(e\d+)?", text, re.A) else [])):
                label = f"Settings({name}={value!r})"
                assert_contains(refusal(label, subject.Settings, **{name: value}), repr(name))
    for name, value in EXCLUDED_BY_SMOKE.items():
        message = refusal(f"smoke with {name}", subject.Settings, smoke=3, **{name: value})
        assert_contains(message, "'smoke'", "3", repr(name), f"is {as_text(value)}; ")
    message = refusal("two weights of 0", subject.Settings, ce_weight=0, kd_weight=0.0)
    assert_contains(message, "'ce_weight'", "'kd_weight'")


def falsify_refused_before_anything_is_loaded(subject: Any) -> None:
    """Start the trainer in a new process with an invalid N, from a flag, two variables and a file."""
    # Only a new process shows what is imported; `subject` is loaded in this one, so mutants do not reach the new one.
    with place() as sandbox:
        file = sandbox.work / "smoke.toml"
        file.write_text("smoke = 5.0\n")
        _assert_refused_early(sandbox, "--smoke", "--smoke", "0")
        _assert_refused_early(sandbox, "APR_DISTILL_MAX_STEPS", APR_DISTILL_MAX_STEPS="abc")
        _assert_refused_early(sandbox, "REFERENCE_TRAINER_SMOKE", REFERENCE_TRAINER_SMOKE="-1")
        _assert_refused_early(sandbox, str(file), "--config", str(file))


def _assert_refused_early(sandbox: Place, origin: str, *flags: str, **variables: str) -> None:
    """Assert exit code 2, one line that names the origin, no import of torch and no changed file."""
    environment = {**os.environ, **sandbox.environment(**variables)}
    environment = {name: value for name, value in environment.items() if value is not None}
    command = [sys.executable, "-X", "importtime", "-m", "reference_trainer", "distill", *sandbox.flags(), *flags]
    before = sandbox.listing()
    process = subprocess.run(
        command,
        cwd=sandbox.work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    changed = changes(before, sandbox.listing())
    lines = process.stderr.splitlines()
    errors = [line for line in lines if not line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines if line not in errors}
    case = f"{origin}, {flags}, {variables}: exit code {process.returncode}, errors {errors}"
    assert process.returncode == 2, f"{case}; expected exit code 2"
    assert len(errors) == 1 and origin in errors[0], f"{case}; expected one line that contains {origin!r}"
    assert process.stdout == "", f"{case}; stdout is {process.stdout!r}, expected nothing"
    assert "click" in imported, f"{case}; the list of imports lacks click, so it cannot be complete"
    assert "torch" not in imported, f"{case}; torch was imported before the refusal"
    assert not changed, f"{case}; the files {changed} were changed, expected none"


def falsify_settings_without_effect_are_named(subject: Any) -> None:
    """Include settings that are 0 or off. The subject is `config.settings`."""
    for values, expected in UNUSED:
        lines = subject.find_unused(Settings(**values))
        actual = sorted(line.removeprefix("settings: ").partition(" has no effect ")[0] for line in lines)
        assert actual == sorted(expected), f"with {values}, the lines are {lines}; expected one each for {expected}"


def falsify_smoke_run_has_no_loggers(subject: Any) -> None:
    """Make the package of the logger impossible to import. The subject is `callbacks.loggers`."""
    modules = {"wandb": "wandb", "mlflow": "mlflow", "tensorboard": "torch.utils.tensorboard"}
    for name in (*LOGGERS, ",".join(LOGGERS)):
        loggers: list[Any] = []
        with mock.patch.dict(sys.modules, {modules[part]: None for part in name.split(",")}):
            settings = Settings(log_to=name, smoke=2)
            load = partial(lambda s, target: target.extend(subject.loggers_of(s)), settings, loggers)
            refused = assertions.refusal(load, PackageError)
        case = f"a smoke run with log_to {name} has the loggers {loggers} or fails with {refused!r}; expected neither"
        assert not refused and not loggers, case
