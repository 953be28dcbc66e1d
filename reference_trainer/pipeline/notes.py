"""Lines before a run about what trains less than it seems to ask for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference_trainer.config.settings import Settings
from reference_trainer.plan.rates import learning_rate
from reference_trainer.plan.schedule import Event, Schedule
from reference_trainer.training.state import TrainState

__all__ = ["find_unreachable", "resume_note", "student_notes", "teacher_note"]


def find_unreachable(settings: Settings, schedule: Schedule) -> list[str]:
    """Return a line for each setting that differs from its default and needs more than the run has."""
    planned, batches = schedule.planned_steps, schedule.micro_batches or schedule.steps_per_epoch
    total = planned if settings.smoke is not None else schedule.total_steps  # a smoke run is a part on purpose
    rate = learning_rate(planned, peak=settings.lr, warmup=settings.warmup, total=planned)
    needed = (
        ("warmup", planned, "steps", f"the learning rate reaches {rate:.3g} instead of {settings.lr:g}"),
        ("lr_decay", planned, "steps", "the learning rate falls as soon as it has reached its peak"),
        ("anneal_warmup", planned, "steps", "no weight reaches its start"),
        ("max_steps", planned, "steps", "it ends before; set epochs for a longer one"),
        ("eval_every", total, "steps", "nothing is evaluated before its end"),
        ("accumulate", batches, "batches in an epoch", "a step takes these"),
    )
    return [
        f"settings: {name} is {value} and the run has {limit} {what}: {so}"
        for name, limit, what, so in needed
        if (value := getattr(settings, name)) is not None
        and value > limit
        and value != Settings.model_fields[name].default
    ]


def teacher_note(settings: Settings, steps: int) -> str | None:
    """Return a line if a warm-up that was chosen is longer than the training of a teacher; None in a smoke run."""
    chosen = settings.warmup != Settings.model_fields["warmup"].default and settings.smoke is None
    if not chosen or settings.warmup <= steps:
        return None
    rate = learning_rate(steps, peak=settings.lr, warmup=settings.warmup, total=steps)
    reached = f"its learning rate reaches {rate:.3g} instead of {settings.lr:g}"
    return f"warmup is {settings.warmup} and it has {steps} steps: {reached}"


def student_notes(settings: Settings, student: nn.Module) -> list[str]:
    """Return a line for each property of a student that keeps it from being trained as asked."""
    lines = []
    if not student.training:
        lines.append("trains in eval mode, without dropout; return model.train() to train with it")
    others = {str(parameter.dtype) for parameter in student.parameters()} - {"torch.float64"}
    if settings.dtype == "float64" and others:
        lines.append(f"has parameters of {', '.join(sorted(others))}; return model.double() to train in float64")
    trained = [parameter.detach() for parameter in student.parameters() if parameter.requires_grad]
    still = [(parameter.dtype, int(_immovable(parameter, settings.lr).sum())) for parameter in trained]
    if settings.weights == "bfloat16":
        still = [(dtype, number) for dtype, number in still if dtype != torch.bfloat16]  # their masters move
    share = sum(number for _, number in still) / max(1, sum(parameter.numel() for parameter in trained))
    if share > 1 / 2:
        dtypes = {dtype for dtype, number in still if number}
        kinds = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        remedy = (
            "choose a larger lr"
            if dtypes <= {torch.float32, torch.float64}
            else "return model.float(), and use --dtype bfloat16 to compute in bfloat16"
        )
        lines.append(
            f"{share:.0%} of its weights are {kinds} numbers, to which a step of the rate {settings.lr:g} is "
            f"rounded off; {remedy}"
        )
    return [f"student: {line}" for line in lines]


def _immovable(weights: Tensor, rate: float) -> Tensor:
    """Return which weights a change by the rate, which is about the largest step of Adam, rounds back."""
    return (weights + rate == weights) & (weights - rate == weights)


def resume_note(resumed: TrainState, schedule: Schedule) -> str | None:
    """Return why a resumed run takes no step; None if it takes one."""
    at = resumed.position
    if at.stopping:
        return (
            f"a callback had stopped the run at step {at.step}, so it takes no further step; to train on, use --rewind "
            "--resume with an earlier checkpoint, or begin a new run with --init-from"
        )
    if at.step >= schedule.total_steps or at.event is Event.TRAIN_END:
        return f"the run had ended with step {at.step}, so it takes no further step"
    return None
