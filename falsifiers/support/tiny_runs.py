"""Whole distillations that are as small as possible. The subject has `distill`."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

TINY: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "teacher_layers": 1,
    "teacher_width": 16,
    "teacher_steps": 1,
    "length": 8,
    "batch_size": 4,
    "epochs": 1,
    "log_every": 0,
    "device": "cpu",
}


def distilled(subject: Any, directory: Path, *, text: bytes, **changes: Any) -> Any:
    """Return the result of a distillation on `text`, with all its files in `directory`."""
    path = directory / "text"
    path.write_bytes(text)
    places = {"data": path, "out": directory / "out", "teacher_cache": directory / "cache"}
    settings = importlib.import_module("reference_trainer.config.settings").Settings(**TINY | places | changes)
    lines = importlib.import_module("reference_trainer.training.progress").Lines(io.StringIO())
    return subject.distill(settings, lines=lines)
