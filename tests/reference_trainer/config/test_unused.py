"""Settings that have no effect are named, and no others."""

from pathlib import Path
from typing import Any

import pytest

from reference_trainer.config.settings import Settings
from reference_trainer.config.unused import unused

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"beta": 0.2}, {"divergence": "jensen_shannon"}),
    ({"anneal_warmup": 5}, {"kd_weight_end": 0.5}),
    ({"anneal": "cosine"}, {"temperature_end": 1.0}),
    ({"feature_distance": "l2"}, {"feature_weight": 0.1}),
    ({"separator": "--"}, {"documents": "pack"}),
    ({"lr_decay": 5}, {"schedule": "wsd"}),
    ({"lora": 2}, {"student": Path("s")}),
    ({"lora_merge": True}, {"student": Path("s"), "lora": 2}),
    ({"best_metric": "eval/kl"}, {"eval_every": 1}),
    ({"teacher_width": 64}, {"teacher_steps": 9}),
    ({"teacher_cache": Path("c")}, {"data": Path("d")}),
]
"""A setting, and another one without which it has no effect."""


@pytest.mark.parametrize(("given", "needed"), CASES, ids=lambda each: ",".join(each))
def test_setting_without_effect_is_named(given: dict[str, Any], needed: dict[str, Any]) -> None:
    (name,) = given
    (line,) = unused(Settings(**given))
    assert line.startswith(f"settings: {name} has no effect without ")
    assert unused(Settings(**given, **needed)) == unused(Settings(**needed)) == []


@pytest.mark.parametrize("name", ["teacher_steps", "teacher_layers", "teacher_width"])
def test_settings_of_a_trained_teacher_have_no_effect_on_one_that_is_given(name: str) -> None:
    assert unused(Settings(teacher=Path("t"), **{name: 64})) == [f"settings: {name} has no effect with teacher"]
    assert unused(Settings(data=Path("d"), **{name: 64})) == []


def test_end_of_a_constant_rate_has_no_effect() -> None:
    assert unused(Settings(schedule="constant", lr_end=0.5)) == [
        "settings: lr_end has no effect with schedule constant"
    ]
    assert unused(Settings(schedule="linear", lr_end=0.5)) == []


def test_defaults_are_not_named() -> None:
    assert unused(Settings(beta=0.5, separator=None, teacher=Path("t"))) == []
