"""Attacks on default settings, and on the student and teacher that settings make.

The subject is `pipeline.distill`; where stated, it is `config.sources` or `cli.distillation`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from falsifiers.support.small_runs import run, small

MODELS = {"layers": 2, "width": 64, "teacher_layers": 4, "teacher_width": 128, "teacher_steps": 1000}
DATA = {"data": None, "documents": None, "length": 128, "batch_size": 16, "accumulate": 1, "epochs": 3, "seed": 0}
TEXTS = {"separator": None, "share_vocabulary": None, "teacher": None, "teacher_cache": None, "init_from": None}
OWN = {"parts": None, "arguments": None, "student": None, "checkpoint_activations": False}
LOSS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7, "divergence": "forward_kl", "beta": 0.5}
FEATURES = {"feature_weight": 0.0, "feature_distance": "cosine", "feature_layers": "-1:-1"}
LARGE = {"shard_teacher": False, "teacher_device_map": None, "teacher_outputs": None}
ENDS = dict.fromkeys(["temperature_end", "ce_weight_end", "kd_weight_end", "feature_weight_end", "max_steps"])
COURSE = {"anneal": "linear", "anneal_warmup": 0, "smoke": None, "resume": None}
OPTIMIZER = {"lr": 3e-3, "warmup": 50, "clip": None, "dtype": "float32"}
PLACE = {"device": "auto", "strategy": "ddp", "rank_timeout": 600, "hang_after": 3600.0, "project_to_steps": 50000}
BEST = {"best_metric": "eval/hard_loss", "best_mode": "min", "best_min_delta": 0.0}
FILES = {"out": Path("distilled"), "force": False, "rewind": False, "trace": None, "callbacks": None}
CADENCE = {"log_every": 10, "eval_every": 0, "save_every": 5000, "keep": 3}
RECORDED = {**MODELS, **LARGE, **DATA, **TEXTS, **OWN, **LOSS, **FEATURES, **ENDS, **COURSE, **OPTIMIZER, **PLACE}
RECORDED |= BEST | FILES | CADENCE
"""Every setting, if nothing else is set."""


def falsify_defaults_are_those_recorded(subject: Any) -> None:
    """Without any origin, each setting has its recorded value. The subject is `config.sources`."""
    seen = subject.gather({}, {}, None).model_dump()
    names = sorted(seen.keys() | RECORDED.keys())
    pairs = {name: (seen.get(name, "no such setting"), RECORDED.get(name, "not recorded")) for name in names}
    wrong = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    assert not wrong, f"defaults (seen, recorded) differ: {wrong}; the same command would do something else"


def falsify_a_supervisor_reads_the_settings_of_its_run(subject: Any) -> None:
    """Flag, variable and file of the command count, in this order. The subject is `cli.distillation`."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "settings.toml"
        file.write_text("width = 32\nlayers = 3\nseed = 1\n")
        variables = {"REFERENCE_TRAINER_LAYERS": "2", "REFERENCE_TRAINER_SEED": "5"}
        with mock.patch.dict(os.environ, variables, clear=True):
            settings = subject.settings_of(["distill", "--seed", "7", "--config", str(file)])
    seen, expected = (settings.width, settings.layers, settings.seed), (32, 2, 7)
    assert seen == expected, f"a supervisor reads width, layers and seed {seen}; its run has {expected}"


SHAPES = st.tuples(st.integers(1, 2), st.sampled_from([32, 64, 96]))
"""Layers, and a width that has a head for every 32 features."""


@given(student=SHAPES, teacher=SHAPES)
def falsify_models_are_made_and_trained_as_the_settings_say(
    subject: Any, student: tuple[int, int], teacher: tuple[int, int]
) -> None:
    trained_on = set[int]()

    def note(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if module.training and isinstance(module, nn.Embedding) and arguments[0].device.type != "meta":
            trained_on.update(arguments[0].flatten().tolist())

    hook = register_module_forward_pre_hook(note)
    try:
        with tempfile.TemporaryDirectory() as name:
            shapes = {"layers": student[0], "width": student[1], "teacher_layers": teacher[0]}
            shapes |= {"teacher_width": teacher[1], "teacher_steps": 4}
            result = run(subject, small(Path(name), out=Path(name) / "out", **shapes))
    finally:
        hook.remove()
    for what, model, (layers, width) in (("student", result.student, student), ("teacher", result.teacher, teacher)):
        config = model.config
        seen, expected = (config.layers, config.width, config.heads), (layers, width, width // 32)
        assert seen == expected, f"layers, width and heads of the {what} are {seen}; expected {expected}"
    held_back = sorted(trained_on & set(range(90, 100)))  # each byte of the text is its own offset
    assert not held_back, f"of 100 bytes, a model is trained on the held-back ones {held_back}"
