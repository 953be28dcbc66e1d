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

# Every setting that a trained teacher depends on, with two values.
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
