"""Faulty parts of a distillation, for mutants that replace a public function or method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch


def teacher_in_the_optimizer(
    original: Any, teacher: Any, student: Any, batch_at: Any, optimizer: Any, **rest: Any
) -> Any:
    """Add the parameters of the teacher to the optimizer."""
    for module in vars(teacher).values():
        if isinstance(module, torch.nn.Module):
            optimizer.add_param_group({"params": list(module.parameters())})
    return original(teacher, student, batch_at, optimizer, **rest)


def teacher_rounded(original: Any, *args: Any, **rest: Any) -> Any:
    """Cast the teacher of a run to half precision."""
    return original(*args, **rest).bfloat16()


def reading_order_without_a_seed(seed: int, epoch: int, count: int) -> Any:
    """Draw the order from the random numbers of the process."""
    return torch.randperm(count, device="cpu")


def weights_of_the_loss_swapped(original: Any, *args: Any, objective: Any, **rest: Any) -> Any:
    """Exchange ce_weight and kd_weight of a student."""
    if objective.kd_weight:
        objective = replace(objective, ce_weight=objective.kd_weight, kd_weight=objective.ce_weight)
    return original(*args, objective=objective, **rest)


def batches_counted(original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any) -> None:
    """Write the number of batches into the manifest in the place of the number of tokens."""
    for metric in manifest.get("held_back", {}).values():
        metric["count"] = -(-metric["count"] // manifest["settings"]["batch_size"])
    original(decoder, directory, manifest, **rest)
