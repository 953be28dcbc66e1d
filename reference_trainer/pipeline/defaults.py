"""Complete the explicit settings of a run: from the resumed checkpoint, or by the defaults of a pretrained student.

Explicit settings come from a flag, an environment variable or a file. They are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from reference_trainer.config.settings import FIELDS, Settings
from reference_trainer.config.sources import flag
from reference_trainer.errors import CheckpointError
from reference_trainer.pipeline.checkpointing import CHECKPOINTS, named_checkpoint
from reference_trainer.storage.checkpoints import read_manifest
from reference_trainer.storage.export import has_weights

PRETRAINED: Mapping[str, float] = {
    "lr": 2e-5,  # the learning rate of a new model ruins a pretrained one within a few steps
    "clip": 1.0,
    "warmup": 0.03,
    "length": 1024,
    "batch_size": 8,
    "epochs": 3,
    "save_every": 500,
}
"""Defaults of a pretrained student; `length` is at most the largest number of positions of the student.

Sources: Taori et al. 2023, Stanford Alpaca (rate, warm-up, epochs); TRL's `SFTConfig` (clip, length, batch size)."""
ADAPTER: Mapping[str, float] = {**PRETRAINED, "lr": 2e-4}
"""Defaults of an adapter. Source: Dettmers et al. 2023, QLoRA, arXiv:2305.14314, appendix B.2 (rate)."""
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "seq_length")
"""Keys of a configuration of transformers that hold the largest number of positions of a row."""
NEW_ON_RESUME = frozenset("out force trace resume rewind smoke max_steps project_to_steps".split())
"""Settings of a single attempt, which a resumed run does not take from its checkpoint."""


def defaults_of(settings: Settings) -> Mapping[str, float]:
    """Return the defaults that depend on the kind of student, by the flat names of settings.

    No file of the student is read; only the existence of weights in a local directory is checked.

    Args:
        settings: The settings of the run.

    Returns:
        `ADAPTER` for a student with `lora`, `PRETRAINED` for another pretrained student, and nothing for a new student:
        the decoder of this package, or a directory with a configuration and no weights.
    """
    model = settings.student.model
    if model is None or (model.is_dir() and not has_weights(model)):
        return {}
    return PRETRAINED if settings.student.lora is None else ADAPTER


def with_defaults(settings: Settings) -> Settings:
    """Return the settings, completed by the defaults of a pretrained student.

    The default dtype of a pretrained student is bfloat16 on a GPU that supports bfloat16, else float32.

    Args:
        settings: The settings of the run; returned unchanged for a new student.
    """
    defaults = defaults_of(settings)
    if not defaults:
        return settings
    chosen = settings.flat(chosen=True)
    values: dict[str, object] = {name: value for name, value in defaults.items() if name not in chosen}
    if "length" not in chosen:
        positions = _positions(settings)
        values["length"] = defaults["length"] if positions is None else min(defaults["length"], positions)
    if "dtype" not in chosen:
        values["dtype"] = _dtype(settings.run.device)
    return settings.replace(**values)


def defaults_line(before: Settings, after: Settings) -> str | None:
    """Return a line with the settings that `with_defaults` added, as flags; None if it added none.

    Args:
        before: The argument of `with_defaults`.
        after: Its result.
    """
    chosen = before.flat(chosen=True)
    added = [f"{flag(name)} {value}" for name, value in after.flat(chosen=True).items() if name not in chosen]
    return f"defaults of a student with weights: {' '.join(added)}" if added else None


def _positions(settings: Settings) -> int | None:
    """Return the largest number of positions from the configuration of the student; None if it cannot be read."""
    from transformers import PretrainedConfig

    revision = {} if settings.student.revision is None else {"revision": settings.student.revision}
    try:
        config, _ = PretrainedConfig.get_config_dict(str(settings.student.model), **revision)
    except Exception:  # damaged or missing files are reported when the model is loaded
        return None
    # A model of text and images contains the configuration of its text model.
    text_config = config.get("text_config")
    if isinstance(text_config, dict):
        config = {**config, **text_config}
    for key in POSITIONS:
        value = config.get(key)
        if type(value) is int and value > 1:
            return value
    return None


def _dtype(device: str) -> str:
    """Return the default dtype of a pretrained student."""
    has_bfloat16 = device != "cpu" and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return "bfloat16" if has_bfloat16 else "float32"


def kept_settings(settings: Settings) -> dict[str, object]:
    """Return the settings that a checkpoint stores for the run that resumes it: JSON values by flat names."""
    values = settings.json_values()
    return {name: value for name, value in values.items() if name not in NEW_ON_RESUME and value is not None}


def resumed_settings(settings: Settings) -> Settings:
    """Return the settings of a resumed run: the explicit settings, and others from the checkpoint to resume.

    The settings in `NEW_ON_RESUME` are not taken from the checkpoint.

    `check_conditions` refuses an explicit setting that a resumed run may not change.

    Args:
        settings: The settings of the run. They are returned unchanged without `resume`, or if the checkpoint cannot be
            read: the run reports the error when it opens the checkpoint.
    """
    resume = settings.checkpoints.resume
    if resume is None:
        return settings
    try:
        manifest = read_manifest(named_checkpoint(settings.run.out / CHECKPOINTS, resume))
    except CheckpointError:
        return settings
    # A checkpoint of an older version lacks "settings". Its conditions contain most settings, and "own" contains the
    # settings that name the student. The condition "strategy" is the strategy in use, not the setting.
    compared = {name: value for name, value in manifest.conditions.items() if name != "strategy"}
    saved = {**compared, **manifest.state.get("own", {}), **manifest.state.get("settings", {})}
    known = {name: value for name, value in saved.items() if name in FIELDS}
    return Settings(**known | settings.flat(chosen=True))


def latest_settings(settings: Settings) -> Settings:
    """Return the settings that a resume from the newest checkpoint in the output directory would have.

    Args:
        settings: The settings of the run; returned unchanged if there is no checkpoint.
    """
    latest = resumed_settings(settings.replace(resume=Path("latest")))
    return latest.replace(resume=settings.checkpoints.resume)
