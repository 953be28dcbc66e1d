"""Faults of plans, defaults and resumed settings, as wrong versions of public functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any


def one_moment(original: Any, student: Any, make_optimizer: Any, *, ranks: int = 1) -> Any:
    memory, notes = original(student, make_optimizer, ranks=ranks)
    return memory | {"optimizer state": memory["weights"]}, notes


def gradients_in_half(original: Any, student: Any, make_optimizer: Any, *, ranks: int = 1) -> Any:
    memory, notes = original(student, make_optimizer, ranks=ranks)
    return memory | {"gradients": memory["gradients"] // 2}, notes


def shards_rounded_down(original: Any, student: Any, make_optimizer: Any, *, ranks: int = 1) -> Any:
    memory, notes = original(student, make_optimizer, ranks=1)
    return {part: size // ranks for part, size in memory.items()}, notes


def accumulation_ignored(original: Any, settings: Any, **options: Any) -> Any:
    return original(settings.replace(accumulate=1), **options)


def epochs_ignored(original: Any, settings: Any, **options: Any) -> Any:
    return original(settings.replace(epochs=1), **options)


def limit_ignored(original: Any, settings: Any, **options: Any) -> Any:
    return original(settings.replace(max_steps=None), **options)


def masked_tokens_counted(original: Any, settings: Any, **options: Any) -> Any:
    planned = original(settings, **options)
    return replace(planned, predicted_tokens=planned.steps * planned.largest_step)


def counted_tokens_alone(original: Any, settings: Any, **options: Any) -> Any:
    planned = original(settings, **options)
    batches = planned.steps * settings.optimizer.accumulate / settings.schedule.epochs
    return replace(planned, predicted_tokens=round(planned.predicted_tokens * min(1.0, 1000 / batches)))


def new_student_with_defaults(original: Any, settings: Any) -> Any:
    from reference_trainer.pipeline.defaults import PRETRAINED

    return PRETRAINED if settings.student.model is not None and settings.student.lora is None else original(settings)


def adapter_with_full_rate(original: Any, settings: Any) -> Any:
    return original(settings.replace(lora=None))


def share_rounded_down(original: Any, warmup: Any, planned: int) -> int:
    return int(warmup * planned) if isinstance(warmup, float) else original(warmup, planned)


def data_forgotten(original: Any, settings: Any) -> dict[str, Any]:
    return {name: value for name, value in original(settings).items() if name not in ("data", "teacher_cache")}


def limit_kept(original: Any, settings: Any) -> Any:
    return original(settings) | {"max_steps": settings.schedule.max_steps or 10**6}


def saved_before_chosen(original: Any, settings: Any) -> Any:
    if settings.checkpoints.resume is None:
        return original(settings)
    return original(type(settings)(out=settings.run.out, resume=Path("latest"), force=True))
