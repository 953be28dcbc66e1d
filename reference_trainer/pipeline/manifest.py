"""The manifest of a run: what it was given, on what it ran, and its results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reference_trainer.config.settings import Settings
from reference_trainer.distillation.step import MetricSum
from reference_trainer.models.placement import device_name
from reference_trainer.storage.export import versions
from reference_trainer.storage.files import path_in_json
from reference_trainer.training.loop import TrainResult

__all__ = ["described_optimizer", "manifest"]


def manifest(
    settings: Settings, device: torch.device, result: TrainResult, held_back: Mapping[str, MetricSum], **others: Any
) -> dict[str, Any]:
    """Return the manifest as a JSON object; `others` are further fields of it, such as digests.

    JSON has neither NaN nor infinity: a number that is not finite is "NaN", "Infinity" or "-Infinity".
    """
    content = {
        "schema": "reference-trainer/manifest/1",
        "settings": {name: path_in_json(value) if isinstance(value, Path) else value for name, value in settings},
        "seed": settings.seed,
        **others,
        "versions": versions(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "result": {
            **asdict(result),
            "throughput_steps_per_s": result.steps_per_s,
            "throughput_tokens_per_s": result.tokens / max(result.elapsed_s, 1e-9),
        },
        "held_back": {name: {"sum": total.sum, "count": total.count} for name, total in held_back.items()},
    }
    return {name: _json_value(value) for name, value in content.items()}


def described_optimizer(optimizer: torch.optim.Optimizer, modules: Mapping[str, nn.Module]) -> dict[str, Any]:
    """Return the name of an optimizer, and its groups: the names of their parameters, and those options that are JSON.

    modules: the modules of the parameters, by the first part of their names. The rate is that of a step, so no option.
    """
    names = {
        parameter: f"{module}.{name}" for module in modules for name, parameter in modules[module].named_parameters()
    }
    groups = [
        {"parameters": [names.get(parameter, "of no module") for parameter in group["params"]], **_options(group)}
        for group in optimizer.param_groups
    ]
    return {"name": type(optimizer).__name__, "groups": groups}


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    plain = (bool, int, float, str, tuple, type(None))
    return {
        name: option for name, option in group.items() if name not in ("params", "lr") and isinstance(option, plain)
    }


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value
