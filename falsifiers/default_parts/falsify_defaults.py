"""Attacks on default settings, and on the configuration file that a supervisor reads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

MODELS = {"layers": 2, "width": 64, "teacher_layers": 4, "teacher_width": 128, "teacher_steps": 1000}
DATA = {"data": None, "documents": None, "length": 128, "batch_size": 16, "accumulate": 1, "epochs": 3, "seed": 0}
LOSS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7, "divergence": "forward_kl", "feature_weight": 0.0}
ENDS = dict.fromkeys(["temperature_end", "ce_weight_end", "kd_weight_end", "feature_weight_end", "max_steps"])
OPTIMIZER = {"lr": 3e-3, "warmup": 50, "clip": None, "dtype": "float32"}
RECORDED = {**MODELS, **DATA, **LOSS, **ENDS, **OPTIMIZER}
"""Settings on which the weights of a run depend if nothing else is set."""


def falsify_defaults_are_those_recorded(subject: Any) -> None:
    """Without any origin, settings on which the weights depend have their recorded values.

    The subject is `config.sources`.
    """
    settings = subject.gather({}, {}, None)
    seen = {name: getattr(settings, name) for name in RECORDED}
    wrong = {name: (seen[name], value) for name, value in RECORDED.items() if seen[name] != value}
    assert not wrong, f"defaults (seen, recorded) differ: {wrong}; the same command would train another model"


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
