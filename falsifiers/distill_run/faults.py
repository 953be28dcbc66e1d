"""Faulty parts of a distillation, for mutants that replace a public function or method."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch


def teacher_in_the_optimizer(
    original: Any, teacher: Any, student: Any, batch_at: Any, optimizer: Any, **rest: Any
) -> Any:
    for module in vars(teacher).values():
        if isinstance(module, torch.nn.Module):
            optimizer.add_param_group({"params": list(module.parameters())})
    return original(teacher, student, batch_at, optimizer, **rest)


def teacher_rounded(original: Any, *args: Any, **rest: Any) -> Any:
    return original(*args, **rest).bfloat16()


def reading_order_without_a_seed(seed: int, epoch: int, count: int) -> Any:
    return torch.randperm(count, device="cpu")


def weights_of_the_loss_swapped(original: Any, *args: Any, objective: Any, **rest: Any) -> Any:
    if objective.kd_weight:
        objective = replace(objective, ce_weight=objective.kd_weight, kd_weight=objective.ce_weight)
    return original(*args, objective=objective, **rest)


def batches_counted(original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any) -> None:
    for metric in manifest.get("held_back", {}).values():
        metric["count"] = -(-metric["count"] // manifest["settings"]["batch_size"])
    original(decoder, directory, manifest, **rest)


def always_scored(batch: Any) -> bool:
    return True
