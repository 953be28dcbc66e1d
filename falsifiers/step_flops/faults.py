"""Faulty counts, for mutants that replace `step_flops`. `original` is the replaced function."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


def counted_by_running(original: Any, teacher: Any, student: Any, tokens: tuple[int, int]) -> int:
    """Run the step on the models themselves: gradients and statistics change, and fused attention isn't counted."""
    batch = torch.zeros(tokens, dtype=torch.int64, device=next(student.parameters()).device)
    with FlopCounterMode(display=False) as counter:
        if teacher is not None:
            with torch.no_grad():
                teacher(batch)
        logits = student(batch)
        logits.backward(torch.ones_like(logits))
    return int(counter.get_total_flops())


def teacher_counted_with_backward(original: Any, teacher: Any, student: Any, tokens: tuple[int, int]) -> int:
    """Count a backward of the teacher, too."""
    once = 0 if teacher is None else original(teacher, student, tokens) - original(None, student, tokens)
    return int(original(teacher, student, tokens) + 2 * once)


def six_for_each_parameter(original: Any, teacher: Any, student: Any, tokens: tuple[int, int]) -> int:
    """Count 6 for each weight and token of the student, 2 of the teacher: embeddings too, but no attention."""
    sizes = [0 if model is None else sum(x.numel() for x in model.parameters()) for model in (teacher, student)]
    return (2 * sizes[0] + 6 * sizes[1]) * tokens[0] * tokens[1]


def teacher_in_its_own_mode(original: Any, teacher: Any, student: Any, tokens: tuple[int, int]) -> int:
    """Count the teacher in train mode if it is there."""
    if teacher is None:
        return int(original(teacher, student, tokens))
    alike = copy.deepcopy(teacher)
    return int(original(None, student, tokens) + original(None, alike, tokens) // 3)


def everything_trains(original: Any, teacher: Any, student: Any, tokens: tuple[int, int]) -> int:
    """Count the backward of frozen weights, too."""
    return int(original(teacher, copy.deepcopy(student).requires_grad_(True), tokens))


def one_micro_batch_counted(original: Any, *parts: Any, schedule: Any, step_flops: Any = None, **rest: Any) -> Any:
    """Count one micro-batch of each step."""
    counted = (
        None if step_flops is None else lambda: step_flops() // min(schedule.accumulation, schedule.micro_batches or 1)
    )
    return original(*parts, schedule=schedule, step_flops=counted, **rest)


def missing_micro_batches_counted(
    original: Any, *parts: Any, schedule: Any, step_flops: Any = None, **rest: Any
) -> Any:
    """Count all micro-batches that a step accumulates, also those that the epoch lacks."""
    taken = min(schedule.accumulation, schedule.micro_batches or 1)
    counted = None if step_flops is None else lambda: step_flops() // taken * schedule.accumulation
    return original(*parts, schedule=schedule, step_flops=counted, **rest)


def count_demanded(original: Any, *parts: Any, step_flops: Any = None, **rest: Any) -> Any:
    """End the run if its operations cannot be counted."""

    def counted() -> Any:
        flops = step_flops()
        if flops is None:
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        return flops

    return original(*parts, step_flops=step_flops and counted, **rest)
