"""Attacks on default settings, and on the student and teacher that settings make."""

import math
import os
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small
from reference_trainer import Schedule, Settings

MODELS = {"layers": 1, "width": 32, "teacher_layers": 4, "teacher_width": 128, "teacher_steps": None}
DATA = {"data": None, "documents": None, "length": 64, "batch_size": 8, "accumulate": 1, "epochs": 3, "seed": 0}
SHARE = {"data_share": None}
TEXTS = {"separator": None, "share_vocabulary": None, "teacher": None, "teacher_cache": None, "init_from": None}
OWN = {"parts": None, "arguments": None, "student": None, "checkpoint_activations": False}
OWN |= {"data_cache": None, "data_cache_gib": 20, "lora": None, "lora_options": None, "lora_merge": False}
OWN |= {"turns": "every", "chat_template": None, "template_options": None}
LOSS = {"temperature": 1.0, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": "forward_kl", "beta": 0.5}
FEATURES = {"feature_weight": 0.0, "feature_distance": "cosine", "feature_layers": "-1:-1"}
CHATS = {"eval_data": None, "eval_rows": 256}
LARGE = {"shard_teacher": False, "teacher_device_map": None, "teacher_outputs": None}
ENDS = dict.fromkeys(["temperature_end", "ce_weight_end", "kd_weight_end", "feature_weight_end", "max_steps"])
COURSE = {"anneal": "linear", "anneal_warmup": 0, "smoke": None, "resume": None}
OPTIMIZER = {"lr": 3e-3, "warmup": 50, "clip": None, "dtype": "float32", "weights": "float32"}
OPTIMIZER |= {"schedule": "cosine", "lr_end": 0.1, "lr_decay": None}
PLACE = {"device": "auto", "threads": None, "strategy": "ddp", "rank_timeout": 600, "hang_after": 3600.0}
PLACE |= {"project_to_steps": 50000}
BEST = {"accept_depth": 0, "best_metric": "eval/hard_loss", "best_mode": "min", "best_min_delta": 0.0}
FILES = {"out": Path("distilled"), "force": False, "rewind": False, "trace": None, "callbacks": None}
CADENCE = {"log_every": 10, "eval_every": 0, "save_every": 5000, "keep": 3}
RECORDED = {
    **MODELS,
    **LARGE,
    **CHATS,
    **DATA,
    **SHARE,
    **TEXTS,
    **OWN,
    **LOSS,
    **FEATURES,
    **ENDS,
    **COURSE,
    **OPTIMIZER,
}
RECORDED |= PLACE | BEST | FILES | CADENCE
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
    with scratch() as directory:
        file = directory / "settings.toml"
        file.write_text("width = 32\nlayers = 3\nseed = 1\n")
        variables = {"REFERENCE_TRAINER_LAYERS": "2", "REFERENCE_TRAINER_SEED": "5"}
        with mock.patch.dict(os.environ, variables, clear=True):
            settings = subject.settings_of(["distill", "--seed", "7", "--config", str(file)])
    seen, expected = (settings.width, settings.layers, settings.seed), (32, 2, 7)
    assert seen == expected, f"a supervisor reads width, layers and seed {seen}; its run has {expected}"


SHAPES = st.tuples(st.integers(1, 2), st.sampled_from([32, 64, 96]))
"""Layers, and a width that has a head for every 32 features."""


@given(student=SHAPES, teacher=SHAPES, share=st.sampled_from([0.3, 0.5, 1.0]))
def falsify_models_are_made_and_trained_as_the_settings_say(
    subject: Any, student: tuple[int, int], teacher: tuple[int, int], share: float
) -> None:
    read: dict[nn.Module, set[int]] = {}

    def note(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if module.training and isinstance(module, nn.Embedding) and arguments[0].device.type != "meta":
            read.setdefault(module, set()).update(arguments[0].flatten().tolist())

    shapes = {"layers": student[0], "width": student[1], "teacher_layers": teacher[0], "teacher_width": teacher[1]}
    with register_module_forward_pre_hook(note), scratch() as directory:
        result = run(subject, small(directory, out=directory / "out", teacher_steps=4, data_share=share, **shapes))
    for what, model, (layers, width) in (("student", result.student, student), ("teacher", result.teacher, teacher)):
        config = model.config
        seen, expected = (config.layers, config.width, config.heads), (layers, width, width // 32)
        assert seen == expected, f"layers, width and heads of the {what} are {seen}; expected {expected}"
    for what, model, part in (("student", result.student, share), ("teacher", result.teacher, 1.0)):
        end = (int(90 * part) - 1) // 7 * 7  # each byte of the text is its own offset; a sequence has seven new ones
        seen, expected = read[model.embedding], set(range(end + 1))
        assert seen == expected, f"of 90 bytes to train on, the {what} reads {sorted(seen)}, not 0 to {end}"


@given(
    shape=st.sampled_from(["cosine", "linear", "constant", "wsd"]),
    warmup=st.integers(0, 4),
    decay=st.sampled_from([None, 1, 3]),
    limit=st.sampled_from([None, 2]),
)
def falsify_rates_follow_the_settings(
    subject: Any, shape: str, warmup: int, decay: int | None, limit: int | None
) -> None:
    """The rate of a step has every setting, and spans the whole run, whatever its limit."""
    given: dict[str, Any] = {"schedule": shape, "lr": 0.5, "lr_end": 0.25, "lr_decay": decay, "warmup": warmup}
    distillation = subject.Distillation(Settings(**given))
    distillation.schedule = Schedule(epochs=2, steps_per_epoch=5, limit=limit)
    begin = max(warmup, 10 - (decay or 2)) if shape == "wsd" else warmup
    for step in range(1, 11):
        way = max(0, step - begin) / (10 - begin)
        left = {"cosine": (1 + math.cos(math.pi * way)) / 2, "constant": 1.0}.get(shape, 1 - way)
        share = 0.25 + 0.75 * left
        expected = 0.5 * (step / warmup if step < warmup else share)
        seen = distillation.learning_rate(step)
        assert math.isclose(seen, expected, rel_tol=1e-12), f"{given}: step {step} of 10 has {seen}, not {expected}"
