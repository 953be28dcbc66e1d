"""The words of refused settings, and of those without effect."""

import json
import math
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reference_trainer.config.kinds import kind_of
from reference_trainer.config.place import read_place
from reference_trainer.config.settings import FIELDS, Objective, Settings, find_unused, schema
from reference_trainer.config.sources import gather
from reference_trainer.errors import SettingError
from tests.reference_trainer.commands import command

ALLOWED = {name: kind_of(field).expected for name, field in FIELDS.items()}
PATH, TEXT = (ALLOWED[name] for name in ("out", "best_metric"))


def refused(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(SettingError) as caught:
        function(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", ALLOWED)
def test_wrong_value_is_shown_with_its_origin_and_the_allowed_values(name: str, tmp_path: Path) -> None:
    wrong = "" if ALLOWED[name] in (PATH, TEXT) else "-x"
    variable, flag = f"REFERENCE_TRAINER_{name.upper()}", name.replace("_", "-")
    expected = f"invalid value {wrong!r} for {{}}: expected {ALLOWED[name]}".format
    assert refused(gather, {name: wrong}, {}, None) == expected(f"--{flag}")
    if wrong:
        assert refused(gather, {}, {variable: wrong}, None) == expected(variable)
    file = tmp_path / "settings.toml"
    file.write_text(f'{name} = "{wrong}"\n', encoding="utf-8")
    assert refused(gather, {}, {}, file) == expected(f"'{name}' in {file}")
    assert refused(Settings, **{name: wrong}) == expected(repr(name))


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("batchsize", "did you mean 'batch_size'?"),
        ("temprature", "did you mean 'temperature'?"),
        ("learning_rate", "did you mean 'lr'?"),
        ("nonsense", "run `reference-trainer distill --help` for a list"),
    ],
)
def test_unknown_key_is_refused_with_a_suggestion(key: str, hint: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'"{key}" = 5\n', encoding="utf-8")
    assert refused(gather, {}, {}, file) == f"unknown setting '{key}' in {file} ({hint})"


def test_unknown_variable_is_refused_with_a_suggestion() -> None:
    for near in ("REFERENCE_TRAINER_BATCH_SIZE", "APR_DISTILL_MAX_STEPS"):
        message = refused(gather, {}, {near[:-1]: "5"}, None)
        assert message == f"unknown environment variable {near[:-1]} (did you mean {near}?)"


def test_conflicting_settings_are_named_with_their_origins_and_values() -> None:
    text = refused(gather, {"smoke": "3"}, {"REFERENCE_TRAINER_MAX_STEPS": "41"}, None)
    assert text.startswith("conflicting settings: --smoke is 3 and REFERENCE_TRAINER_MAX_STEPS is 41; give one of them")
    text = refused(Settings, smoke=3, resume=Path("latest"))
    assert text.startswith("conflicting settings: 'smoke' is 3 and 'resume' is latest; give one of them")
    text = refused(Settings, ce_weight=0, kd_weight=0.0)
    assert text == "conflicting settings: 'ce_weight' and 'kd_weight' are both 0; expected one above 0"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("distill", "--learning-rate", "1"), "Did you mean '--lr'?"),
        (("evaluate", "model", "--seq-len", "8"), "Did you mean '--length'?"),
        (("evaluate", "model", "--learning-rate", "1"), "No such option '--learning-rate'"),
    ],
)
def test_options_of_other_trainers_are_refused_with_a_suggestion(arguments: tuple[str, ...], hint: str) -> None:
    ended = command(*arguments)
    assert ended.code == 2 and hint in ended.complaints and "--lr" not in ended.complaints.replace(hint, "")


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"beta": 0.2}, {"divergence": "jensen_shannon"}),
    ({"anneal_warmup": 5}, {"kd_weight_end": 0.5}),
    ({"anneal": "cosine"}, {"temperature_end": 1.0}),
    ({"feature_distance": "l2"}, {"feature_weight": 0.1}),
    ({"separator": "--"}, {"documents": "pack"}),
    ({"lr_decay": 5}, {"schedule": "wsd"}),
    ({"lora": 2}, {"student": Path("s")}),
    ({"turns": "last"}, {"student": Path("s")}),
    ({"chat_template": Path("f")}, {"student": Path("s")}),
    ({"template_options": "{}"}, {"student": Path("s")}),
    ({"lora_merge": True}, {"student": Path("s"), "lora": 2}),
    ({"best_metric": "eval/kl"}, {"eval_every": 1}),
    ({"teacher_width": 64}, {"teacher_steps": 9}),
    ({"teacher_cache": Path("c")}, {"data": Path("d")}),
]
"""A setting, and another one without which it has no effect."""


@pytest.mark.parametrize(("settings", "needed"), CASES, ids=lambda names: ",".join(names))
def test_setting_without_effect_is_named(settings: dict[str, Any], needed: dict[str, Any]) -> None:
    (name,) = settings
    (line,) = find_unused(Settings(**settings))
    assert line.startswith(f"settings: {name} has no effect without ")
    assert find_unused(Settings(**settings, **needed)) == find_unused(Settings(**needed)) == []


@pytest.mark.parametrize("size", ["0", "1000001", "1" * 5000, "x"])
def test_wrong_number_of_processes_is_refused(size: str) -> None:
    message = refused(read_place, {"RANK": "0", "WORLD_SIZE": size})
    assert message.startswith(
        f"invalid value {size[:80]!r} for the variable WORLD_SIZE: expected an integer from 1 to "
    )


@pytest.mark.parametrize("name", ["teacher_steps", "teacher_layers", "teacher_width"])
def test_settings_of_a_trained_teacher_have_no_effect_on_one_that_is_given(name: str) -> None:
    for given in ({"teacher": Path("t")}, {"teacher_outputs": Path("t")}, {"teacher_url": "http://t"}):
        unused = find_unused(Settings(student=Path("s"), **given, **{name: 64}))
        assert unused == [f"settings: {name} has no effect with teacher"]
    assert find_unused(Settings(data=Path("d"), **{name: 64})) == []


def test_end_of_a_constant_rate_has_no_effect_and_defaults_are_not_named() -> None:
    (line,) = find_unused(Settings(schedule="constant", lr_end=0.5))
    assert line == "settings: lr_end has no effect with schedule constant"
    assert find_unused(Settings(schedule="linear", lr_end=0.5)) == []
    assert find_unused(Settings(beta=0.5, separator=None, teacher=Path("t"))) == []


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("objective.temprature", "did you mean 'objective.temperature'?"),
        ("optimizer.learning_rate", "did you mean 'optimizer.lr'?"),
        ("optimizer.temperature", "did you mean 'objective.temperature'?"),
        ("objective.nonsense", "run `reference-trainer distill --help` for a list"),
    ],
)
def test_unknown_key_of_a_group_is_refused_with_a_suggestion(key: str, hint: str, tmp_path: Path) -> None:
    file, (group, leaf) = tmp_path / "settings.yaml", key.split(".")
    file.write_text(f"{group}:\n  {leaf}: 5\n", encoding="utf-8")
    assert refused(gather, {}, {}, file) == f"unknown setting '{key}' in {file} ({hint})"
    assert refused(Settings, **{group: {leaf: 5}}) == f"unknown setting '{key}' ({hint})"


def test_group_by_itself_refuses_its_settings_by_name() -> None:
    message = refused(Objective, temperature=0, temprature=1)
    assert message == (
        "invalid value 0 for 'temperature': expected a number from 0.0001 to 10000; "
        "unknown setting 'temprature' (did you mean 'temperature'?)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: 1\nseed: 2\nlr: 3\n", "duplicate key 'lr' in {}, line 3 (first at line 1)"),
        ("run: {seed: 1, seed: 2}\n", "duplicate key 'run.seed' in {}, line 1 (first at line 1)"),
        ("- lr\n", "invalid YAML in {}: expected a mapping; expected lines such as lr: 0.001"),
        ("lr: [1]\n", "invalid value [1] for 'lr' in {}: expected a number above 0, up to 1e6"),
        ("lr: &a 1\nseed: *a\n", "invalid YAML in {}: expected no aliases; expected lines such as lr: 0.001"),
        ("arguments: {a: 1, a: 2}\n", "duplicate key 'arguments.a' in {}, line 1 (first at line 1)"),
        ("arguments: {a: NaN}\n", "invalid value {{'a': nan}} for 'arguments' in {}: expected a JSON object"),
        ("objective: 3\n", "invalid value '3' for 'objective' in {}: expected a table of settings"),
        ("run: {out: a}\nout: a\n", "conflicting settings: 'run.out' in {0} and 'out' in {0} are the same setting"),
    ],
)
def test_unusable_yaml_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    assert refused(gather, {}, {}, file).removesuffix("; give one of them") == message.format(file)


def test_invalid_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "settings.yml"
    file.write_text("seed: 1\nlr: [\n", encoding="utf-8")
    message = refused(gather, {}, {}, file)
    assert message.startswith(f"invalid YAML in {file}: ") and "line 3, column 1" in message and "\n" not in message


def test_numbers_of_yaml_need_no_point_and_empty_files_set_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("lr: 1e-3\nmax_steps: null\nobjective:\n  feature_layers: 1:-2\n", encoding="utf-8")
    assert gather({}, {}, file) == Settings(lr=1e-3, max_steps=None, feature_layers="1:-2")
    file.write_text("# nothing\n", encoding="utf-8")
    assert gather({}, {}, file) == Settings()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.toml", '[run.arguments]\na = 1e-3\nb = [true, "1"]\nc = {d = "e f"}\n'),
        ("f.yaml", 'run:\n  arguments:\n    a: 1e-3\n    b: [true, "1"]\n    c: {d: e f}\n'),
    ],
)
def test_object_may_be_a_table_of_a_file(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    expected = {"a": 0.001, "b": [True, "1"], "c": {"d": "e f"}}
    assert json.loads(gather({}, {}, file).run.arguments or "") == expected
    assert gather({}, {}, file) == Settings(arguments=expected)


@pytest.mark.parametrize("value", [{"a": math.nan}, {"a": Path()}, {"a": date(2000, 1, 1)}, [1], 3])
def test_object_without_json_is_refused(value: object) -> None:
    assert refused(Settings, arguments=value).endswith(" for 'arguments': expected a JSON object")


SCHEMA = jsonschema.Draft202012Validator(json.loads(schema()))


@pytest.mark.parametrize(
    ("content", "is_valid"),
    [
        ({}, True),
        ({"temperature": 2, "data": "text", "objective": {"beta": 0.5}}, True),
        ({"data": {"path": "text", "length": 8}, "schedule": "wsd"}, True),
        ({"schedule": {"shape": "wsd"}}, True),
        ({"temprature": 2}, False),
        ({"objective": {"temprature": 2}}, False),
        ({"schedule": "step"}, False),
        ({"objective": {"temperature": "2"}}, False),
        ({"objective": 2}, False),
        ({"student": {"lora_options": {"r": 3}}, "arguments": "{}"}, True),
        ({"arguments": [3]}, False),
    ],
)
def test_schema_of_files_takes_flat_keys_and_tables(content: dict[str, Any], is_valid: bool) -> None:
    assert SCHEMA.is_valid(content) == is_valid
    assert isinstance(_create(content), Settings) == is_valid


def _create(content: dict[str, Any]) -> Settings | str:
    try:
        return Settings(**content)
    except SettingError as error:
        return str(error)
