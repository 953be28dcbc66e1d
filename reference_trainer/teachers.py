"""Where a teacher comes from: a directory, or a training on the same text whose result is kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from reference_trainer.callbacks import Callback
from reference_trainer.data import VOCABULARY, Sequences, epoch_order
from reference_trainer.errors import ModelFileError, OutputError
from reference_trainer.export import MANIFEST, load_decoder, refuse_unlike_manifest, save_decoder
from reference_trainer.loop import Objective, new_optimizer, train
from reference_trainer.models import Decoder, DecoderConfig, new_decoder
from reference_trainer.placement import stored_in
from reference_trainer.plan import Schedule, learning_rate
from reference_trainer.providers import FixtureTeacher, ModuleStudent
from reference_trainer.settings import Settings

__all__ = ["cache_directory", "cached_or_trained", "fit", "heads_for", "loaded", "teacher_key"]

_SEED_OFFSET = 1_000_003  # the teacher must not start as a widened copy of the student, nor read in its order


def heads_for(width: int) -> int:
    """Heads about 32 wide: the largest number up to width / 32 that divides the width into even parts."""
    return next(heads for heads in range(max(1, width // 32), 0, -1) if width % (2 * heads) == 0)


def loaded(directory: Path) -> Decoder:
    """The teacher in `directory`. Errors: `ModelFileError`, also when it reads another vocabulary than bytes."""
    teacher = load_decoder(directory)
    if teacher.config.vocab_size != VOCABULARY:
        raise ModelFileError(
            f"the teacher in {directory} has a vocabulary of {teacher.config.vocab_size}; expected {VOCABULARY}, bytes"
        )
    return teacher


def cache_directory(settings: Settings) -> Path:
    """Where trained teachers are kept. Errors: `OutputError` for a user without a home."""
    if settings.teacher_cache is not None:
        return settings.teacher_cache
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reference_trainer"
    except RuntimeError as error:
        raise OutputError(f"no place for a cache: {error} Give --teacher-cache.") from error


def teacher_key(settings: Settings, digest: str, device: torch.device) -> str:
    """A name that differs wherever the trained teacher may: every setting and version that it depends on."""
    depends_on = {
        "format": 2,  # to be raised with every change of how a teacher is trained
        "data": digest,
        "device": device.type,
        "torch": torch.__version__,
        **{name: getattr(settings, name) for name in ("batch_size", "dtype", "length", "lr", "seed", "warmup")},
        **{name: getattr(settings, name) for name in ("teacher_layers", "teacher_steps", "teacher_width")},
    }
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:24]


def cached_or_trained(
    settings: Settings,
    sequences: Sequences,
    digest: str,
    callbacks: Sequence[Callback],
    say: Callable[[str], None],
    wrap: Callable[[Decoder], torch.nn.Module],
) -> Decoder:
    """A teacher trained on `sequences` as the settings say; a cached one where the same was trained before.

    A cache that can't be read or written costs a training, not the run; a smoke run only reads it.
    """
    key = f"teacher-{teacher_key(settings, digest, sequences.device)}"
    try:
        directory = cache_directory(settings) / key
        if (directory / MANIFEST).exists():  # it is written last
            refuse_unlike_manifest(directory)
            teacher = loaded(directory)
            say(f"teacher: {directory}")
            return teacher.to(sequences.device)
    except (ModelFileError, OSError) as error:
        say(f"teacher: the cached one is left aside: {error}")
    steps = settings.teacher_steps if settings.smoke is None else min(settings.teacher_steps, settings.smoke)
    say(f"teacher: training one for {steps} steps on the same text; --teacher PATH takes yours")
    teacher = fit(settings, sequences, steps, callbacks, wrap)
    if settings.smoke is None:
        _keep(teacher, settings, key, say)
    return teacher


def fit(
    settings: Settings,
    sequences: Sequences,
    steps: int,
    callbacks: Sequence[Callback],
    wrap: Callable[[Decoder], torch.nn.Module],
) -> Decoder:
    """A new decoder after `steps` steps on the labels alone: the same loop, with a teacher of weight 0."""
    width = settings.teacher_width
    config = DecoderConfig(vocab_size=VOCABULARY, layers=settings.teacher_layers, width=width, heads=heads_for(width))
    seed = settings.seed + _SEED_OFFSET
    decoder = stored_in(settings.dtype, new_decoder(config, seed)).to(sequences.device)
    try:
        train(
            FixtureTeacher(torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float32, device=sequences.device)),
            ModuleStudent(wrap(decoder), VOCABULARY),
            lambda epoch, position: sequences.batch(epoch_order(seed, epoch, len(sequences)), position),
            new_optimizer(decoder.parameters(), settings.lr),
            schedule=Schedule(epochs=-(-steps // sequences.batches), steps_per_epoch=sequences.batches, limit=steps),
            objective=Objective(temperature=1.0, ce_weight=1.0, kd_weight=0.0),
            learning_rate=lambda step: learning_rate(step, peak=settings.lr, warmup=settings.warmup, total=steps),
            callbacks=callbacks,
        )
    except BaseException as error:
        error.add_note("while the teacher was trained")  # it speaks of a student: to the loop, this one is
        raise
    return decoder


def _keep(teacher: Decoder, settings: Settings, key: str, say: Callable[[str], None]) -> None:
    manifest: dict[str, Any] = {"kind": "cached teacher", "config": asdict(teacher.config)}
    try:
        directory = cache_directory(settings) / key
        directory.mkdir(parents=True, exist_ok=True)
        save_decoder(teacher, directory, manifest)
        say(f"teacher: kept in {directory}")
    except (OutputError, OSError) as error:
        say(f"teacher: not kept for the next run: {error}")
