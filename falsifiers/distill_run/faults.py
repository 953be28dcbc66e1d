"""Faulty parts of a distillation, for mutants that replace a public function or method."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch


def optimizer_climbs(parameters: Any, rate: float) -> Any:
    """Return an optimizer that maximises the loss."""
    return torch.optim.AdamW(parameters, lr=rate, maximize=True)


def first_parameter_not_optimized(original: Any, parameters: Any, rate: float) -> Any:
    """Leave the first parameter, an embedding, out of the optimizer."""
    return original(list(parameters)[1:], rate)


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


def untrained_student_exported(
    original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any
) -> None:
    """Save a newly initialized model instead of the trained one."""
    from reference_trainer.models.decoder import new_decoder

    model = new_decoder(decoder.config, manifest["seed"]) if "seed" in manifest else decoder
    original(model, directory, manifest, **rest)


def digest_of_the_training_part(original: Any, *args: Any) -> Any:
    """Hash the training part of the text only."""
    text = original(*args)
    return replace(text, digest=hashlib.sha256(bytes(text.training.tolist())).hexdigest())


def evaluated_on_training_text(original: Any, *args: Any) -> Any:
    """Hold back a part of the training text."""
    text = original(*args)
    return replace(text, held_back=text.training[: len(text.held_back)])


def weights_of_the_loss_swapped(original: Any, *args: Any, objective: Any, **rest: Any) -> Any:
    """Exchange ce_weight and kd_weight of a student."""
    if objective.kd_weight:
        objective = replace(objective, ce_weight=objective.kd_weight, kd_weight=objective.ce_weight)
    return original(*args, objective=objective, **rest)


def temperature_of_one(original: Any, *args: Any, objective: Any, **rest: Any) -> Any:
    """Train at temperature 1, whatever the settings say."""
    return original(*args, objective=replace(objective, temperature=1.0), **rest)


def initial_loss_of_another_step(original: Any, *args: Any, **rest: Any) -> Any:
    """Report the loss of the last step as that of the first."""
    result = original(*args, **rest)
    return replace(result, initial_loss=result.final_loss)


def batches_counted(original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any) -> None:
    """Write the number of batches into the manifest in the place of the number of tokens."""
    for metric in manifest.get("held_back", {}).values():
        metric["count"] = -(-metric["count"] // manifest["settings"]["batch_size"])
    original(decoder, directory, manifest, **rest)


def epoch_end_not_traced(self: Any, context: Any) -> None:
    """Write no line at the end of an epoch."""


def weights_drawn_in_the_default_dtype(original: Any, config: Any, seed: int) -> Any:
    """Round new weights to torch's default dtype."""
    return original(config, seed).to(torch.get_default_dtype())


def autocast_left_out(dtype: str, decoder: Any) -> Any:
    """Compute a bfloat16 run in float32."""
    return decoder


def double_in_single(dtype: str, decoder: Any) -> Any:
    """Store the weights of a float64 run in float32."""
    return decoder.float()


def progress_without_a_title(original: Any, self: Any, *args: Any, **rest: Any) -> None:
    """Leave the title out of progress lines, so a teacher's look like the student's."""
    original(self, *args, **{name: value for name, value in rest.items() if name != "title"})
