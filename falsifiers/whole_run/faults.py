"""Faults of single parts of a run, in place of functions of the trainer."""

from types import SimpleNamespace
from typing import Any
from unittest import mock


def zero_is_the_default(original: Any, step: int, *, end: float = 0.1, **options: Any) -> float:
    rate: float = original(step, end=end or 0.1, **options)
    return rate


def first_of_a_short_window(original: Any, schedule: Any, epoch_step: int) -> range:
    numbers: range = original(schedule, epoch_step)
    return numbers[:1] if len(numbers) < schedule.accumulation else numbers


def embeddings_as_first_layer(original: Any, module: Any, decay: float) -> Any:
    scales = original(module, decay)
    least = min(scales.values()) / decay
    return {parameter: max(scale, least) for parameter, scale in scales.items()}


def decayed_embeddings(original: Any, *modules: Any) -> Any:
    return {parameter for parameter in original(*modules) if parameter.dim() < 2}


def temperature_of_the_limit(original: Any, self: Any) -> Any:
    from reference_trainer.pipeline import parts
    from reference_trainer.pipeline.loss import objective as right

    def limited(settings: Any) -> Any:
        return SimpleNamespace(
            weights=lambda step, steps: right(settings).weights(settings.schedule.max_steps or step, steps)
        )

    with mock.patch.object(parts, "objective", limited):
        return original(self)
