"""Attacks on default settings, and on the configuration file that a supervisor reads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

MODELS = {"layers": 2, "width": 64, "teacher_layers": 4, "teacher_width": 128, "teacher_steps": 1000}
DATA = {"data": None, "documents": None, "length": 128, "batch_size": 16, "accumulate": 1, "epochs": 3, "seed": 0}
TEXTS = {"separator": None, "share_vocabulary": None, "teacher": None, "teacher_cache": None, "init_from": None}
LOSS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7, "divergence": "forward_kl", "beta": 0.5}
FEATURES = {"feature_weight": 0.0, "feature_distance": "cosine", "feature_layers": "-1:-1"}
ENDS = dict.fromkeys(["temperature_end", "ce_weight_end", "kd_weight_end", "feature_weight_end", "max_steps"])
COURSE = {"anneal": "linear", "anneal_warmup": 0, "smoke": None, "resume": None}
OPTIMIZER = {"lr": 3e-3, "warmup": 50, "clip": None, "dtype": "float32"}
PLACE = {"device": "auto", "strategy": "ddp", "rank_timeout": 600, "hang_after": 3600.0, "project_to_steps": 50000}
BEST = {"best_metric": "eval/hard_loss", "best_mode": "min", "best_min_delta": 0.0}
FILES = {"out": Path("distilled"), "force": False, "rewind": False, "trace": None, "callbacks": None}
CADENCE = {"log_every": 10, "eval_every": 0, "save_every": 5000, "keep": 3}
RECORDED = MODELS | DATA | TEXTS | LOSS | FEATURES | ENDS | COURSE | OPTIMIZER | PLACE | BEST | FILES | CADENCE
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
