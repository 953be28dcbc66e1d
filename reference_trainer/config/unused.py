"""Settings that are given and have no effect beside the others, such as a `beta` without jensen_shannon."""

from __future__ import annotations

from collections.abc import Callable

from reference_trainer.config.settings import Settings
from reference_trainer.distillation.objective import WITH_BETA

__all__ = ["unused"]


def _weights_end(settings: Settings) -> bool:
    ends = (settings.ce_weight_end, settings.kd_weight_end, settings.feature_weight_end)
    return any(end is not None for end in ends)


_NEEDED: tuple[tuple[tuple[str, ...], str, Callable[[Settings], bool]], ...] = (
    (("beta",), f"without divergence {' or '.join(WITH_BETA)}", lambda given: given.divergence in WITH_BETA),
    (("anneal_warmup",), "without the end of a weight, such as kd_weight_end", _weights_end),
    (
        ("anneal",),
        "without an end, such as temperature_end",
        lambda given: given.temperature_end is not None or _weights_end(given),
    ),
    (
        ("feature_distance", "feature_layers"),
        "without feature_weight",
        lambda given: bool(given.feature_weight or given.feature_weight_end),
    ),
    (("lr_decay",), "without schedule wsd", lambda given: given.schedule == "wsd"),
    (("lr_end",), "with schedule constant", lambda given: given.schedule != "constant"),
    (("separator",), "without documents", lambda given: given.documents is not None),
    (("best_metric", "best_mode", "best_min_delta"), "without eval_every", lambda given: given.eval_every > 0),
    (("arguments",), "without parts", lambda given: given.parts is not None),
    (
        (
            *("checkpoint_activations", "data_cache", "data_cache_gib", "eval_data", "eval_rows", "lora"),
            *("teacher_device_map", "weights", "turns", "chat_template", "template_options"),
        ),
        "without student",
        lambda given: given.student is not None,
    ),
    (("lora_options", "lora_merge"), "without lora", lambda given: given.lora is not None),
    (("layers", "width", "separator", "data_share"), "with student", lambda given: given.student is None),
    (
        ("teacher_steps", "teacher_layers", "teacher_width", "teacher_cache"),
        "with teacher",
        lambda given: given.teacher is None and given.teacher_outputs is None,
    ),
    (
        ("teacher_layers", "teacher_width", "teacher_cache"),
        "without teacher_steps or data",
        lambda given: given.teacher is not None or given.teacher_outputs is not None or given.trains_teacher,
    ),
)


def unused(settings: Settings) -> list[str]:
    """Return a line for each setting that differs from its default and has no effect, with the reason."""
    return [
        f"settings: {name} has no effect {reason}"
        for names, reason, is_used in _NEEDED
        for name in names
        if getattr(settings, name) != Settings.model_fields[name].default and not is_used(settings)
    ]
