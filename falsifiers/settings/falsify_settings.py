"""Attacks on the settings of a run: their origins, in order, and the refusal of values, keys, variables and files.

The subjects are `config.sources`, `config.settings` and the command line.
"""

import json
import os
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
from reference_trainer.config.settings import FIELDS, Settings
from reference_trainer.errors import PackageError, SettingError

COUNTS = [3, 5, 7, 11]
SCALED = {"feature_weight": 1.0}
STUDENT: dict[str, Any] = {"student": Path("s"), "data": Path("d")}
UNUSED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"lr_end": 0.0, "schedule": "constant"}, {"lr_end"}),
    ({"lr_end": 0.0}, set()),
    ({"data_cache_gib": 0, "lora": 4}, {"data_cache_gib", "lora"}),
    ({"data_cache_gib": 0, "lora": 4, **STUDENT}, set()),
    ({"feature_distance": "l2", "feature_layers": "0:0"}, {"feature_distance", "feature_layers"}),
    ({"feature_distance": "l2", **SCALED}, set()),
    ({"best_mode": "max", "eval_every": 0}, {"best_mode"}),
    ({"log_to": "wandb", "smoke": 2}, {"log_to"}),
    ({"log_to": "wandb"}, set()),
    ({"lora_merge": True, **STUDENT}, {"lora_merge"}),
    ({"teacher_width": 64, "teacher": Path("t")}, {"teacher_width"}),
    ({"group_by_length": True}, {"group_by_length"}),
    ({"group_by_length": True, **STUDENT}, set()),
    ({"group_by_length": True, "documents": "pack", **STUDENT}, {"group_by_length"}),
    ({"answer_tokens": 9, **STUDENT}, {"answer_tokens"}),
    ({"answer_tokens": 9, "on_policy_end": 0.5, "anneal": "cosine", **STUDENT}, set()),
    ({"divergence": "reverse_kl", "cross_tokenizer": True}, {"cross_tokenizer"}),
    ({"divergence": "reverse_kl", "cross_tokenizer": True, **STUDENT}, {"divergence"}),
    ({"anneal_warmup": 2, "temperature_end": 2.0, "anneal": "cosine"}, {"anneal_warmup"}),
    ({"anneal_warmup": 2, "kd_weight": 0.0, "ce_weight_end": 1.0}, set()),
    ({"beta": 0.2}, {"beta"}),
    ({"teacher_steps": 4, "teacher_outputs": Path("t")}, {"teacher_steps"}),
    ({"teacher_layers": 2}, {"teacher_layers"}),
    ({"teacher_layers": 2, "data": Path("d")}, set()),
]
"""Settings of a run, and the names of the settings that have no effect in it."""
PATHS = ["first", "/second/path", "a third", "."]
NUMBERS = [0.5, 1.25, 3, 1e-2]
FEW, SIZES, SCALES = [0, 1, 2, 3], [16, 32, 48, 65536], [0.0001, 1.5, 3, 10000]
SWITCHES = (
    "force rewind checkpoint_activations lora_merge shard_teacher group_by_length skip_invalid_rows trust_remote_code "
    "compile cross_tokenizer"
)


def same_for(names: str, values: list[Any]) -> dict[str, list[Any]]:
    """Return the same values for settings, whose names are separated by spaces."""
    return dict.fromkeys(names.split(), values)


LEGAL: dict[str, list[Any]] = {
    **same_for("data out trace callbacks teacher student teacher_cache init_from teacher_outputs", PATHS),
    **same_for("data_cache chat_template eval_data", PATHS),
    **same_for("teacher_steps teacher_layers layers batch_size accumulate lr_decay lora", COUNTS),
    **same_for("max_steps smoke rank_timeout project_to_steps threads answer_tokens teacher_top_k", COUNTS),
    **same_for("log_every anneal_warmup save_every eval_every accept_depth data_cache_gib data_workers", FEW),
    **same_for("ce_weight kd_weight feature_weight best_min_delta", NUMBERS),
    **same_for("ce_weight_end kd_weight_end feature_weight_end", NUMBERS),
    **same_for("temperature temperature_end answer_temperature", SCALES),
    **same_for("teacher_width width", SIZES),
    **same_for(SWITCHES, [True, False]),
    **same_for("lr_end beta on_policy on_policy_end", [0, 0.25, 0.75, 1]),
    "eval_rows": FEW,
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
"""Names in each group, and after `=` the flat one where it is another. Another name breaks the commands of users."""
GROUPED = {
    flat or leaf: (group, leaf)
    for group, names in NAMES.items()
    for leaf, _, flat in (name.partition("=") for name in names.split())
}
"""Group and name of each setting, by its flat name."""
PATH_SETTINGS = [name for name, values in LEGAL.items() if values is PATHS or name == "resume"]
ALIASES = {
    "smoke": "APR_DISTILL_MAX_STEPS",
    "log_every": "APR_DISTILL_LOG_EVERY",
    "project_to_steps": "APR_DISTILL_PROJECT_TO_STEPS",
    "save_every": "APR_DISTILL_CHECKPOINT_EVERY",
}

NO_COUNTS = ["0", "-1", "+5", "1.5", "1e3", "abc", " 5 ", "5\n", "٣", "0x10", "1_000", "nan", "True", "None", "9" * 19]
NO_COUNTS_IN_TOML = ["0", "-1", "5.0", "true", '"5"', '""', "[5]", "nan", "1" + "0" * 19]
NO_NUMBERS = ["-0.5", "nan", "inf", "1e999", "-inf", "abc", " 1", "1_0", "0x1", "1,5"]
NO_DTYPES, NO_OBJECTS = ["float16", "bf16", "torch.float32"], ["", "a", "[1]", "null"]
NAMED = "best_metric teacher_device_map separator teacher_url served_model revision teacher_revision".split()
NAMED += ["attn_implementation"]
FROM_ZERO = (
    "warmup seed log_every anneal_warmup save_every keep eval_every accept_depth data_cache_gib eval_rows data_workers"
)
ILLEGAL: dict[str, list[str]] = {
    **{name: NO_COUNTS for name, values in LEGAL.items() if values is COUNTS or name == "epochs"},
    **{
        name: [""]
        for name in (
            *PATH_SETTINGS,
            "best_metric",
            "teacher_device_map",
            "separator",
            "teacher_url",
            "served_model",
            *NAMED,
        )
    },
    **same_for(FROM_ZERO, NO_COUNTS[1:]),
    **same_for("teacher_width width", [*NO_COUNTS, "17", "8", "65552"]),
    **{name: [*NO_NUMBERS, "1.1e30"] for name, values in LEGAL.items() if values is NUMBERS},
    **same_for("temperature temperature_end answer_temperature", [*NO_NUMBERS, "0", "0.00009", "10001"]),
    **same_for("beta lr_end on_policy on_policy_end", [*NO_NUMBERS, "1.01"]),
    **same_for("lora_options template_options mix optimizer_options quantization", NO_OBJECTS),
    **same_for(SWITCHES, ["yes", "True", "2", "on"]),
    "best_mode": ["Min", "lowest", "min "],
    "parts": ["", "a", "a.b", "a:b:c", ":B", "a:", "a-b:C", "a/b.py:C"],
    "optimizer": ["", "adam", "AdamW", "torch.optim.SGD"],
    "log_to": ["", "Wandb", "wandb,", "wandb, mlflow", "comet"],
    "turns": ["Last", "all", "every "],
    "arguments": [*NO_OBJECTS, "3", "{'a': 1}"],
    "documents": ["Pad", "packed", "none", "pad "],
    "share_vocabulary": ["Truncate", "truncate_student", "cut", "pad "],
    "feature_distance": ["cos", "L2", "mse", "l2 "],
    "feature_layers": ["", "0", "0:", "0:0,", "0:0;1:1", "a:b", "0:1:2"],
    "length": [*NO_COUNTS, "1"],
    "clip": [*NO_NUMBERS, "0", "-0", "1.1e30"],
    **same_for("data_share answer_top_p layer_decay", [*NO_NUMBERS, "0", "1.01"]),
    "schedule": ["Cosine", "step", "wsd ", "warmup_stable_decay"],
    "divergence": ["kl", "Forward_KL", "jsd", "forward_kl "],
    "anneal": ["constant", "Linear", "cos"],
    "strategy": ["DDP", "fsdp", "fsdp2 ", "zero"],
    "lr": [*NO_NUMBERS, "0", "-0", "1e-400", "1000001"],
    "hang_after": [*NO_NUMBERS, "-1", "1000001"],
    "device": ["gpu", "CPU", "cuda:x", "cuda:-1", "mps"],
    "dtype": NO_DTYPES,
    "weights": [*NO_DTYPES, "float64"],
}
"""Texts that are refused, for each setting."""
WRONG_TYPES: list[tuple[str, str]] = [
    *(("smoke", text) for text in NO_COUNTS_IN_TOML),
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
    """Return the text of a settings file."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def as_yaml(value: Any) -> str:
    """Return a value as YAML; a text with characters that have a meaning in YAML is quoted."""
    return value if isinstance(value, str) and value.replace("_", "").isalnum() else json.dumps(value)


@contextmanager
def toml_file(text: str, name: str = "settings.toml") -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_text(text, encoding="utf-8")
        yield path


def origins_of(name: str) -> list[str]:
    """Return the origins of a setting, in order of precedence."""
    return ["flag", *variables(name), "file"]


def started(subject: Any, where: Place, *arguments: str, **environment: str) -> tuple[list[Any], Any]:
    """Return the settings of the runs that the command line starts, and how it ended; a run only records them."""
    runs: list[Any] = []

    def run(settings: Any, **rest: Any) -> None:
        runs.append(settings)
        raise SystemExit(0)

    return runs, invoked(subject, where, *arguments, run=run, **environment)


def refusal(case: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """Return the message of the `SettingError` that a call has to raise."""
    try:
        accepted = function(*arguments, **settings)
    except SettingError as error:
        return str(error)
    raise AssertionError(f"{case} is accepted: {accepted}")


def assert_named(message: str, *parts: str) -> None:
    """The message has these names and values."""
    for part in parts:
        assert part in message, f"the refusal {message[:300]!r} does not name {part!r}"


def _same(name: str, value: Any, expected: Any) -> bool:
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
    """Draw settings with one origin or more; the origin that counts has another value than the rest."""
    name = st.sampled_from(sorted(ALIASES)) | st.sampled_from(sorted(LEGAL))  # few have two variables
    names = draw(st.sets(name, min_size=1, max_size=6))
    drawn = Origins({}, {}, {}, {})
    names -= {"max_steps", "resume", "rewind"} if "smoke" in names else set()
    for name in sorted(names):
        first, *rest = sorted(
            draw(st.lists(st.sampled_from(origins_of(name)), min_size=1, unique=True)), key=origins_of(name).index
        )
        drawn.expected[name] = draw(st.sampled_from(LEGAL[name]))
        other = draw(st.sampled_from([value for value in LEGAL[name] if value != drawn.expected[name]]))
        values = {first: drawn.expected[name], **dict.fromkeys(rest, other)}
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
    with toml_file(as_toml(drawn.file)) as path:
        # A file that a flag names counts before the one that the variable names, which needn't be there.
        environment = drawn.environment | {"REFERENCE_TRAINER_CONFIG": str(path) if by_variable else "/nowhere.toml"}
        settings = subject.gather(drawn.flags, environment, None if by_variable else path)
    for name, default in Settings().flat().items():
        value, expected = settings.flat()[name], drawn.expected.get(name, default)
        assert _same(name, value, expected), f"{name} is {value!r}; expected {expected!r}"


def falsify_every_setting_has_flags_variable_and_keys(subject: Any) -> None:
    """Flags and keys are flat or in a group, and a file is TOML or YAML."""
    for keys in (LEGAL.keys(), GROUPED.keys()):
        assert FIELDS.keys() == keys, f"settings without a recorded value or group, or none any more: {FIELDS ^ keys}"
    with place() as where:
        for name, (value, *_) in LEGAL.items():
            group, leaf = GROUPED[name]
            files = {
                "flat.toml": as_toml({name: value}),
                "table.toml": f"[{group}]\n{as_toml({leaf: value})}",
                "flat.yaml": f"{name}: {as_yaml(value)}\n",
                "table.yml": f"{group}:\n  {leaf}: {as_yaml(value)}\n",
            }
            for file, text in files.items():
                (where.root / file).write_text(text, encoding="utf-8")
            flags = [f"--{written.replace('_', '-')}" for written in (name, f"{group}.{leaf}")]
            calls: list[tuple[list[str], dict[str, str]]] = [
                *(([flag] if value is True else [flag, as_text(value)], {}) for flag in flags),
                *(([], {variable: as_text(value)}) for variable in variables(name)),
                *((["--config", str(where.root / file)], {}) for file in files),
            ]
            for arguments, environment in calls:
                case = f"{name} = {value!r} by {arguments or environment}"
                runs, ended = started(subject, where, *arguments, **environment)
                assert len(runs) == 1, f"{case}: exit code {ended.exit_code}, {ended.output}"
                seen = runs[0].flat(chosen=True)
                assert seen.keys() == {name} and _same(name, seen[name], value), f"{case} gives the run {seen}"


def falsify_keywords_may_be_flat_or_grouped(subject: Any) -> None:
    """The subject is `config.settings`."""
    for name, (value, *_) in LEGAL.items():
        group, leaf = GROUPED[name]
        kind = type(getattr(subject.Settings(), group))
        ways: dict[str, Callable[[], Any]] = {
            "a flat keyword": partial(subject.Settings, **{name: value}),
            "a dotted one": partial(subject.Settings, **{f"{group}.{leaf}": value}),
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
        if value == "{}":  # a JSON object
            ways["an object"] = partial(subject.Settings, **{name: json.loads(value)})
        for way, make in ways.items():
            result, case = make(), f"{name} = {value!r} by {way}"
            chosen = result.flat(chosen=True)
            assert chosen.keys() == {name} and _same(name, chosen[name], value), f"{case} chooses {chosen}"
            seen = getattr(getattr(result, group), leaf)
            assert _same(name, seen, value), f"{case} gives {group}.{leaf} = {seen!r}"
            rest = result.flat() | {name: None}
            assert rest == subject.Settings().flat() | {name: None}, f"{case} changes other settings: {rest}"
        if name not in NAMES:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                seen = getattr(result, name)
            messages = [str(warning.message) for warning in warned if warning.category is DeprecationWarning]
            assert _same(name, seen, value), f"settings.{name} is {seen!r}; expected {value!r}"
            assert len(messages) == 1 and f"{group}.{leaf}" in messages[0], f"reading settings.{name} warns {messages}"


def falsify_settings_named_twice_are_refused(subject: Any) -> None:
    """By the flat and the dotted name at one origin, also with equal values. The subject is `config.sources`."""
    for name, (value, *_) in LEGAL.items():
        if name in NAMES:  # the name of a table and a key cannot both be in a file
            continue
        group, leaf = GROUPED[name]
        dotted, text = f"{group}.{leaf}", as_text(value)
        flags = [f"--{written.replace('_', '-')}" for written in (name, dotted)]
        assert_named(refusal(f"{flags}", subject.gather, {name: text, dotted: text}, {}, None), *flags)
        twice = {
            "twice.toml": f"{as_toml({name: value})}[{group}]\n{as_toml({leaf: value})}",
            "twice.yaml": f"{group}: {{{leaf}: {as_yaml(value)}}}\n{name}: {as_yaml(value)}\n",
        }
        for file, content in twice.items():
            with toml_file(content, file) as path:
                assert_named(refusal(content, subject.gather, {}, {}, path), repr(name), repr(dotted), str(path))
        message = refusal(f"{name} and {dotted}", subject.Settings, **{name: value, group: {leaf: value}})
        assert_named(message, repr(name), repr(dotted))


def falsify_empty_flags_are_refused(subject: Any) -> None:
    """As of `--lr "$LR"` with an unset LR. The subject is the command line."""
    flags = [f"--{name.replace('_', '-')}" for name in LEGAL if name not in SWITCHES.split()]
    with place() as where:
        for flag in (*flags, "--config"):
            runs, ended = started(subject, where, flag, "", REFERENCE_TRAINER_LR="0.1")
            case = f"{flag} '': exit code {ended.exit_code}, {ended.output!r}"
            assert ended.exit_code == 2 and not runs, f"{case}, {len(runs)} runs; expected exit code 2 and none"
            assert flag in ended.output, f"{case}; expected the flag's name"


UNREADABLE_YAML = ["smoke: [", "- smoke", "5", "smoke: 5\nsmoke: 5", "? [smoke]\n: 5", "smoke: {n: 5}", "objective: 5"]
UNREADABLE_YAML += ["smoke: 5\n lr: 1", "objective: {beta: 0.5, beta: 0.5}", "#" * (2**20 + 1)]
UNREADABLE = ["smoke = ", "= 5", "smoke = 5\nsmoke = 6", "smoke = \ud800", "#" * (2**20 + 1)]


def falsify_unusable_files_are_refused(subject: Any) -> None:
    for key in ("batchsize", "batch-size", "temprature", "Smoke", "data.batchsize", "run.lr"):
        group, _, leaf = key.rpartition(".")
        for name, text in (
            ("unknown.toml", f'[{group}]\n"{leaf}" = 5' if group else f'"{key}" = 5'),
            ("unknown.yaml", f"{group}: {{{leaf}: 5}}" if group else f"{key}: 5"),
        ):
            with toml_file(text, name) as path:
                assert_named(refusal(f"the key {key}", subject.gather, {}, {}, path), repr(key), str(path))
    for text in UNREADABLE_YAML:
        with toml_file(text, "wrong.yaml") as path:
            assert_named(refusal(text[:40], subject.gather, {}, {}, path), str(path))
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
    unrelated = {"REFERENCE": "5", "APR_DISTILL": "5", "REFERENCE_TRAINERS": "5", "XAPR_DISTILL_MAX_STEPS": "5"}
    seen, expected = subject.gather({}, unrelated, None), subject.gather({}, {}, None)
    assert seen == expected, f"{unrelated} give the settings {seen}; expected {expected}"


def falsify_wrong_values_are_refused(subject: Any) -> None:
    for name, texts in ILLEGAL.items():
        for text in texts:
            flag = f"--{name.replace('_', '-')}"
            dotted = ".".join(GROUPED[name])
            for written, expected in ((name, flag), (dotted, f"--{dotted.replace('_', '-')}")):
                message = refusal(f"{expected} {text[:40]!r}", subject.gather, {written: text}, {}, None)
                assert_named(message, f"{expected}:")
            for variable in variables(name) if text else []:
                label = f"{variable}={text[:40]!r}"
                assert_named(refusal(label, subject.gather, {}, {variable: text}, None), variable)
    for name, text in WRONG_TYPES:
        with toml_file(f"{name} = {text}") as path:
            message = refusal(f"{name} = {text[:40]} in a file", subject.gather, {}, {}, path)
            assert_named(message, repr(name), str(path))
        with toml_file(f"{'.'.join(GROUPED[name])} = {text}") as path:
            message = refusal(f"{name} = {text[:40]} in a table of a file", subject.gather, {}, {}, path)
            assert_named(message, repr(".".join(GROUPED[name])), str(path))
    for name, text in WRONG_IN_YAML:
        with toml_file(f"{name}: {text}", "wrong.yaml") as path:
            message = refusal(f"{name}: {text} in a file", subject.gather, {}, {}, path)
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
    assert (taken.checkpoints.resume, taken.run.out) == (Path("latest"), Path("there")), (
        f"paths given as text are {taken}"
    )
    for name, values in LIBRARY.items():
        for value in values:
            label = f"Settings({name}=...) of {type(value).__name__}"
            assert_named(refusal(label, subject.Settings, **{name: value}), repr(name))
    for name, value in TOGETHER.items():
        message = refusal(f"smoke with {name}", subject.Settings, smoke=3, **{name: value})
        assert_named(message, "'smoke'", "3", repr(name), f"is {as_text(value)}; ")
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
    environment = {**os.environ, **where.environment(**variables)}
    environment = {name: value for name, value in environment.items() if value is not None}
    command = [sys.executable, "-X", "importtime", "-m", "reference_trainer", "distill", *where.flags(), *flags]
    before = where.listing()
    ended = subprocess.run(
        command, cwd=where.work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
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


def falsify_settings_without_effect_are_named(subject: Any) -> None:
    """Also a setting that is turned off. The subject is `config.settings`."""
    for values, expected in UNUSED:
        lines = subject.find_unused(Settings(**values))
        seen = {line.removeprefix("settings: ").partition(" has no effect ")[0] for line in lines}
        assert seen == expected, f"with {values}, the lines are {lines}; expected one for each of {sorted(expected)}"


def falsify_smoke_run_has_no_loggers(subject: Any) -> None:
    """No package of a logger is needed. The subject is `callbacks.loggers`."""
    for name in ("wandb", "mlflow"):
        loggers: list[Any] = []
        with mock.patch.dict(sys.modules, {name: None}):
            settings = Settings(log_to=name, smoke=2)
            load = partial(lambda s, target: target.extend(subject.loggers_of(s)), settings, loggers)
            refused = assertions.refusal(load, PackageError)
        seen = refused or loggers
        assert not seen, f"a smoke run with log_to {name} has loggers: {seen}"
