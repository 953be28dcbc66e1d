"""Settings that are given and have no effect beside the others, such as a `beta` without jensen_shannon."""

from __future__ import annotations

from collections.abc import Callable

from reference_trainer.config.settings import Settings
from reference_trainer.distillation.objective import WITH_BETA

__all__ = ["find_unused"]


def _weights_end(settings: Settings) -> bool:
    ends = (settings.ce_weight_end, settings.kd_weight_end, settings.feature_weight_end)
    return any(end is not None for end in ends)


_NEEDED: tuple[tuple[tuple[str, ...], str, Callable[[Settings], bool]], ...] = (
    (("beta",), f"without divergence {' or '.join(WITH_BETA)}", lambda settings: settings.divergence in WITH_BETA),
    (("anneal_warmup",), "without the end of a weight, such as kd_weight_end", _weights_end),
    (
        ("anneal",),
        "without an end, such as temperature_end",
        lambda settings: settings.temperature_end is not None or _weights_end(settings),
    ),
    (
        ("feature_distance", "feature_layers"),
        "without feature_weight",
        lambda settings: bool(settings.feature_weight or settings.feature_weight_end),
    ),
    (("lr_decay",), "without schedule wsd", lambda settings: settings.schedule == "wsd"),
    (("lr_end",), "with schedule constant", lambda settings: settings.schedule != "constant"),
    (("separator",), "without documents", lambda settings: settings.documents is not None),
    (("best_metric", "best_mode", "best_min_delta"), "without eval_every", lambda settings: settings.eval_every > 0),
    (("arguments",), "without parts", lambda settings: settings.parts is not None),
    (
        (
            *("checkpoint_activations", "data_cache", "data_cache_gib", "eval_data", "eval_rows", "lora"),
            *("teacher_device_map", "weights", "turns", "chat_template", "template_options"),
        ),
        "without student",
        lambda settings: settings.student is not None,
    ),
    (("lora_options", "lora_merge"), "without lora", lambda settings: settings.lora is not None),
    (("layers", "width", "separator", "data_share"), "with student", lambda settings: settings.student is None),
    (
        ("teacher_steps", "teacher_layers", "teacher_width", "teacher_cache"),
        "with teacher",
        lambda settings: settings.teacher is None and settings.teacher_outputs is None,
    ),
    (
        ("teacher_layers", "teacher_width", "teacher_cache"),
        "without teacher_steps or data",
        lambda settings: (
            settings.teacher is not None or settings.teacher_outputs is not None or settings.trains_teacher
        ),
    ),
)


def find_unused(settings: Settings) -> list[str]:
    """Return a line for each setting that differs from its default and has no effect, with the reason."""
    return [
        f"settings: {name} has no effect {reason}"
        for names, reason, is_used in _NEEDED
        for name in names
        if getattr(settings, name) != Settings.model_fields[name].default and not is_used(settings)
    ]
