"""Faulty teachers, caches and keys, for mutants that replace a public function."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any


def untrained_teacher_cached(
    original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any
) -> None:
    """Save a newly initialized model of the same shape."""
    original(type(decoder)(decoder.config), directory, manifest, **rest)


def cached_without_its_shape(
    original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any
) -> None:
    """Leave the configuration out of the manifest of a cached teacher."""
    original(decoder, directory, {name: value for name, value in manifest.items() if name != "config"}, **rest)


def key_without_the_seed(original: Any, settings: Any, digest: str, device: Any, **rest: Any) -> Any:
    """Share a key between teachers of different seeds."""
    return original(settings.model_copy(update={"seed": 0}), digest, device, **rest)


def key_without_the_learning_rate(original: Any, settings: Any, digest: str, device: Any, **rest: Any) -> Any:
    """Share a key between teachers of different learning rates."""
    return original(settings.model_copy(update={"lr": 1.0}), digest, device, **rest)


def key_without_the_text(original: Any, settings: Any, digest: str, device: Any, **rest: Any) -> Any:
    """Put the path of the text into the key instead of its content."""
    return original(settings, str(settings.data), device, **rest)


def key_of_joined_values(settings: Any, digest: str, device: Any, **rest: Any) -> str:
    """Join the values without a separator, so 1, 12 and 11, 2 are equal."""
    names = (
        "batch_size",
        "dtype",
        "length",
        "lr",
        "seed",
        "warmup",
        "teacher_layers",
        "teacher_steps",
        "teacher_width",
    )
    values = [digest, device.type, *(getattr(settings, name) for name in names)]
    return hashlib.sha256("".join(map(str, values)).encode()).hexdigest()[:24]


def key_of_another_format(original: Any, settings: Any, digest: str, device: Any, **rest: Any) -> str:
    """Change every key although the training is the same."""
    return hashlib.sha256(original(settings, digest, device, **rest).encode()).hexdigest()[:24]


def cache_not_verified(directory: Path) -> None:
    """Use a cached teacher without a look at its manifest."""


def cache_used_without_its_manifest(original: Any, settings: Any, sequences: Any, digest: str, *rest: Any) -> Any:
    """Use the weights in the cache although the manifest, which is written last, is missing."""
    from reference_trainer.pipeline import teachers

    directory = _place(settings, sequences, digest)
    if (directory / "model.safetensors").exists() and not (directory / "manifest.json").exists():
        return teachers.load_teacher(directory)
    return original(settings, sequences, digest, *rest)


def cached_teacher_not_moved(original: Any, settings: Any, sequences: Any, digest: str, *rest: Any) -> Any:
    """Leave a cached teacher on the CPU."""
    from reference_trainer.pipeline import teachers

    directory = _place(settings, sequences, digest)
    if (directory / "manifest.json").exists():
        return teachers.load_teacher(directory)
    return original(settings, sequences, digest, *rest)


def _place(settings: Any, sequences: Any, digest: str) -> Path:
    from reference_trainer.pipeline import teachers

    key = teachers.teacher_key(settings, digest, sequences.device)
    return teachers.cache_directory(settings) / f"teacher-{key}"


def unwritable_cache_ends_the_run(original: Any, settings: Any, *rest: Any) -> Any:
    """Fail where the directory of the cache cannot be created."""
    from reference_trainer.pipeline import teachers

    teachers.cache_directory(settings).mkdir(parents=True, exist_ok=True)
    return original(settings, *rest)


def smoke_run_caches_its_teacher(original: Any, settings: Any, *rest: Any) -> Any:
    """Cache the teacher of a smoke run, which was trained for a few steps only."""
    if settings.smoke is not None:
        steps = min(settings.teacher_steps, settings.smoke)
        settings = settings.model_copy(update={"smoke": None, "teacher_steps": steps})
    return original(settings, *rest)


def partly_trained_teacher_used(
    original: Any, settings: Any, sequences: Any, steps: int, callbacks: Any, wrap: Any
) -> Any:
    """Train on without callbacks after an exception, instead of raising it."""
    try:
        return original(settings, sequences, steps, callbacks, wrap)
    except BaseException:
        return original(settings, sequences, steps, (), wrap)


def teacher_not_reported(
    original: Any, settings: Any, sequences: Any, digest: str, callbacks: Any, say: Any, wrap: Any
) -> Any:
    """Report neither the training nor the directory of a teacher."""
    return original(settings, sequences, digest, callbacks, lambda line: None, wrap)


def xdg_not_read(original: Any, settings: Any, environment: Any = None, **rest: Any) -> Any:
    """Ignore XDG_CACHE_HOME."""
    return original(settings, environment={}, **rest)


def vocabulary_not_read(original: Any, directory: Path, *, any_vocabulary: bool = False) -> Any:
    """Accept a teacher of any vocabulary."""
    return original(directory, any_vocabulary=True)


def heads_of_16_features(width: int) -> int:
    """Return the largest number of heads of an even width of at least 16 features, or 1."""
    return next(heads for heads in range(max(1, width // 16), 0, -1) if width % (2 * heads) == 0)


def teacher_distilled_from_nothing(original: Any, *args: Any, objective: Any, **rest: Any) -> Any:
    """Distil a teacher from its placeholder, a uniform distribution."""
    if objective.kd_weight == 0:
        objective = replace(objective, kd_weight=1.0)
    return original(*args, objective=objective, **rest)


def teacher_starts_as_its_student(original: Any, settings: Any, *rest: Any) -> Any:
    """Train a teacher from the weights of a student of its shape, in the order of that student."""
    return original(settings.model_copy(update={"seed": settings.seed - 1_000_003}), *rest)
