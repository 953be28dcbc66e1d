"""Settings that teachers depend on or not, the teacher of a run, and changes to the files of a cached one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

import reference_trainer

CPU = torch.device("cpu")
TEXT = torch.arange(60, dtype=torch.uint8)
WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"

# Every setting that a trained teacher depends on, with two values; then every other one.
DEPENDS = {
    "batch_size": (2, 3),
    "dtype": ("float32", "bfloat16"),
    "length": (8, 9),
    "lr": (3e-3, 4e-3),
    "seed": (0, 1),
    "warmup": (1, 11),
    "teacher_layers": (1, 2),
    "teacher_steps": (2, 21),
    "teacher_width": (16, 32),
    "documents": ("pad", "pack"),
    "separator": ("--", "."),
}
ELSE = {
    "data": Path("elsewhere"),
    "out": Path("elsewhere"),
    "force": True,
    "trace": Path("elsewhere"),
    "callbacks": Path("elsewhere"),
    "teacher": Path("elsewhere"),
    "teacher_cache": Path("elsewhere"),
    "layers": 3,
    "width": 128,
    "epochs": 7,
    "max_steps": 9,
    "smoke": 9,
    "temperature": 3.0,
    "ce_weight": 0.9,
    "kd_weight": 0.1,
    "device": "cpu",
    "strategy": "fsdp2",
    "rank_timeout": 7,
    "log_every": 3,
    "project_to_steps": 7,
    "accumulate": 3,
    "clip": 0.5,
    "divergence": "reverse_kl",
    "beta": 0.25,
    "anneal": "cosine",
    "temperature_end": 3.0,
    "ce_weight_end": 0.1,
    "kd_weight_end": 0.9,
    "share_vocabulary": "pad",
    "feature_weight": 0.5,
    "feature_distance": "l2",
    "feature_layers": "0:0",
    "feature_weight_end": 0.9,
    "anneal_warmup": 3,
    "save_every": 3,
    "keep": 7,
    "eval_every": 3,
    "best_metric": "eval/agreement",
    "best_mode": "max",
    "best_min_delta": 0.5,
    "rewind": True,
    "resume": Path("elsewhere"),
    "init_from": Path("elsewhere"),
    "hang_after": 60.0,
}


def settings_of(cache: Path | None, **others: Any) -> Any:
    return reference_trainer.Settings(
        teacher_cache=cache, **{**{name: values[0] for name, values in DEPENDS.items()}, **others}
    )


class Fetched:
    """The teacher of a run: the bits of its weights, the steps of its training, and the output."""

    def __init__(self, subject: Any, settings: Any, digest: str = "d") -> None:
        self.said: list[str] = []
        self.steps = 0
        part = {"length": settings.length, "batch_size": settings.batch_size, "device": CPU}
        sequences = reference_trainer.Sequences(bytes_N=TEXT, **part)
        # A smoke run's settings have a smaller number of steps; the key is of the whole training.
        teacher = subject.cached_or_trained(settings, sequences, digest, [self._counter()], self.said.append, same)
        self.bits = bits_of(teacher)

    def _counter(self) -> Any:
        def count(listener: Any, context: Any) -> None:
            self.steps = context.step

        return type("Counter", (reference_trainer.Callback,), {"on_step_end": count})()


def same(decoder: nn.Module) -> nn.Module:
    return decoder


def bits_of(module: nn.Module) -> dict[str, tuple[str, list[Any]]]:
    return {name: (str(value.dtype), value.tolist()) for name, value in module.state_dict().items()}


def cut(path: Path, part: float = 0.5) -> None:
    os.truncate(path, int(path.stat().st_size * part))


def reconfigure(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
