"""An attack on the values of settings that nobody gave. The subject is `config.sources`."""

from __future__ import annotations

from typing import Any

MODELS = {"layers": 2, "width": 64, "teacher_layers": 4, "teacher_width": 128, "teacher_steps": 1000}
DATA = {"data": None, "documents": None, "length": 128, "batch_size": 16, "accumulate": 1, "epochs": 3, "seed": 0}
LOSS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7, "divergence": "forward_kl", "feature_weight": 0.0}
ENDS = dict.fromkeys(["temperature_end", "ce_weight_end", "kd_weight_end", "feature_weight_end", "max_steps"])
OPTIMIZER = {"lr": 3e-3, "warmup": 50, "clip": None, "dtype": "float32"}
RECORDED = {**MODELS, **DATA, **LOSS, **ENDS, **OPTIMIZER}
"""Settings on which the weights of a run depend if nothing else is set."""


def falsify_defaults_are_those_recorded(subject: Any) -> None:
    """Without any origin, settings on which the weights depend have their recorded values."""
    settings = subject.gather({}, {}, None)
    seen = {name: getattr(settings, name) for name in RECORDED}
    wrong = {name: (seen[name], value) for name, value in RECORDED.items() if seen[name] != value}
    assert not wrong, f"defaults (seen, recorded) differ: {wrong}; the same command would train another model"
