"""Load or train the teacher of a run, or read its stored outputs.

Shape letters: B batch, T position, V vocabulary, K kept tokens.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from reference_trainer.callbacks.base import Callback
from reference_trainer.config.settings import Settings
from reference_trainer.data.text import VOCABULARY, Rows, ShuffledBatches
from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch, Teacher, TopK, TopKTeacher
from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent
from reference_trainer.distillation.step import labels_of_logits
from reference_trainer.errors import DataError, ModelFileError, OutputError, SettingError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.models.placement import stored_in
from reference_trainer.pipeline.report import teacher_note
from reference_trainer.plan.rates import learning_rate, warmup_steps
from reference_trainer.plan.schedule import Schedule
from reference_trainer.storage.export import MANIFEST, load_decoder, save_decoder, verify_manifest
from reference_trainer.storage.retention import differences
from reference_trainer.storage.teacher_outputs import SavedOutputs
from reference_trainer.training.loop import Objective, train
from reference_trainer.training.update import new_optimizer, undecayed

_LABELS_ONLY = Objective(temperature=1.0, ce_weight=1.0, kd_weight=0.0)
PACKAGED = Path(str(files("reference_trainer.data") / "teacher"))
"""The packaged teacher, which was trained on the packaged text with the settings in its manifest."""
_STEPS = 1000  # default number of steps of the teacher's training
LOGGED_EVERY = 100
"""Number of steps between two lines of the teacher's training."""
_SEED_OFFSET = 1_000_003  # so that weights and order of rows differ from the student's


def heads_for(width: int) -> int:
    """Return the largest number of heads that gives each head an even width of at least 32 features, or 1."""
    return next(heads for heads in range(max(1, width // 32), 0, -1) if width % (2 * heads) == 0)


def load_teacher(directory: Path, *, any_vocabulary: bool = False) -> Decoder:
    """Return the teacher in `directory`.

    Raise `ModelFileError` if the teacher cannot be read or, without `any_vocabulary`, if its tokens are not bytes.
    """
    teacher = load_decoder(directory)
    if teacher.config.vocab_size != VOCABULARY and not any_vocabulary:
        raise ModelFileError(
            f"the teacher in {directory} has a vocabulary of {teacher.config.vocab_size}; expected {VOCABULARY} "
            f"(bytes); use --share-vocabulary if the smaller vocabulary has the first tokens of the larger one"
        )
    return teacher


def cache_directory(
    settings: Settings, *, environment: Mapping[str, str] = os.environ, home: Callable[[], Path] = Path.home
) -> Path:
    """Return the directory of cached teachers. Raise as `default_cache`."""
    return settings.teacher.cache or default_cache("--teacher-cache", environment=environment, home=home)


def default_cache(
    flag: str, *, environment: Mapping[str, str] = os.environ, home: Callable[[], Path] = Path.home
) -> Path:
    """Return the default directory of caches.

    A relative XDG_CACHE_HOME is ignored, as the XDG Base Directory Specification requires. Raise `OutputError`, which
    names the flag that sets another directory, if there is no home directory.
    """
    place = Path(environment.get("XDG_CACHE_HOME", ""))
    try:
        return (place if place.is_absolute() else home() / ".cache") / "reference_trainer"
    except RuntimeError as error:
        raise OutputError(f"cannot locate a cache directory: {error} Use {flag} to choose one.") from error


def teacher_key(settings: Settings, digest: str, device: torch.device, *, version: str = torch.__version__) -> str:
    """Return 24 hex digits of a hash of settings, text, kind of device and version of torch of a trained teacher."""
    values = settings.flat()
    names = ["batch_size", "dtype", "length", "lr", "seed", "warmup", "teacher_layers", "teacher_width"]
    names += ["documents", "separator"] if settings.data.documents else []
    depends_on = {
        "format": 3,  # increase this number when the training of a teacher changes
        "data": digest,
        "device": device.type,
        "torch": version,
        "teacher_steps": settings.teacher.steps or _STEPS,
        **{name: values[name] for name in names},
    }
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:24]


def load_or_train(
    settings: Settings,
    sequences: Rows,
    digest: str,
    callbacks: Sequence[Callback],
    write_line: Callable[[str], None],
    wrap: Callable[[Decoder], torch.nn.Module],
) -> Decoder:
    """Return the cached teacher of these settings and this text, or train a teacher on `sequences` and cache it.

    A cache that cannot be read or written is ignored. A smoke run does not write to the cache.

    Args:
        settings: The settings of the run.
        sequences: The rows to train on.
        digest: The SHA-256 of the text.
        callbacks: Callbacks of the training.
        write_line: Called with each line of output.
        wrap: Returns the module whose forward is called, such as the decoder under autocast.
    """
    key = f"teacher-{teacher_key(settings, digest, sequences.device)}"
    try:
        directory = cache_directory(settings) / key
        if (directory / MANIFEST).exists():  # the manifest is written last
            verify_manifest(directory)
            teacher = load_teacher(directory)
            write_line(f"teacher: {directory}")
            return teacher.to(sequences.device)
    except (ModelFileError, OSError) as error:
        write_line(f"teacher: ignoring the cached teacher: {error}")
    steps = settings.teacher.steps or _STEPS
    steps = steps if settings.run.smoke is None else min(steps, settings.run.smoke)
    write_line(f"teacher: training a teacher for {steps} steps on the same text (use --teacher PATH for your own)")
    if note := teacher_note(settings, steps):
        write_line(f"teacher: {note}")
    teacher = train_teacher(settings, sequences, steps, callbacks, wrap)
    if settings.run.smoke is None:
        _write_to_cache(teacher, settings, key, write_line)
    return teacher


def untrained_teacher(settings: Settings, device: torch.device) -> Decoder:
    """Return the decoder that `train_teacher` trains."""
    width = settings.teacher.width
    config = DecoderConfig(vocab_size=VOCABULARY, layers=settings.teacher.layers, width=width, heads=heads_for(width))
    return stored_in(settings.run.dtype, new_decoder(config, settings.run.seed + _SEED_OFFSET)).to(device)


def train_teacher(
    settings: Settings,
    sequences: Rows,
    steps: int,
    callbacks: Sequence[Callback],
    wrap: Callable[[Decoder], torch.nn.Module],
) -> Decoder:
    """Return a new decoder that is trained for `steps` steps on the labels alone.

    The other arguments are as for `load_or_train`.
    """
    decoder = untrained_teacher(settings, sequences.device)
    # `train` needs a teacher with the same vocabulary, but does not run it if kd_weight is 0.
    try:
        train(
            FixtureTeacher(torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float32, device=sequences.device)),
            ModuleStudent(wrap(decoder), VOCABULARY),
            ShuffledBatches(sequences=sequences, seed=settings.run.seed + _SEED_OFFSET).batch,
            new_optimizer(decoder.parameters(), settings.optimizer.lr, undecayed=undecayed(decoder)),
            schedule=Schedule(
                epochs=-(-steps // sequences.batches),
                steps_per_epoch=sequences.batches,
                limit=steps,
                log_every=LOGGED_EVERY,
            ),
            objective=_LABELS_ONLY,
            learning_rate=lambda step: learning_rate(
                step, peak=settings.optimizer.lr, warmup=warmup_steps(settings.schedule.warmup, steps), total=steps
            ),
            callbacks=callbacks,
        )
    except BaseException as error:
        error.add_note("while training the teacher")  # messages of `train` call the decoder a student
        raise
    return decoder


def _write_to_cache(teacher: Decoder, settings: Settings, key: str, write_line: Callable[[str], None]) -> None:
    """Write a teacher to the cache. If this fails, write a line instead of raising."""
    manifest: dict[str, object] = {"kind": "cached teacher", "config": asdict(teacher.config)}
    try:
        directory = cache_directory(settings) / key
        directory.mkdir(parents=True, exist_ok=True)
        save_decoder(teacher, directory, manifest)
        write_line(f"teacher: cached in {directory}")
    except (OutputError, OSError) as error:
        write_line(f"teacher: not cached for the next run: {error}")


DATA_SETTINGS = ("length", "documents", "separator", "share_vocabulary", "data_share")
"""Settings that determine the rows of the data, and the tokens that have a logit."""


def outputs_identity(settings: Settings, digests: Mapping[str, str], rows: int) -> dict[str, object]:
    """Return the values, by name, that must be equal for stored outputs and for a run that reads these outputs."""
    return {**{name: settings.flat()[name] for name in DATA_SETTINGS}, **digests, "rows": rows}


def check_outputs(saved: SavedOutputs, settings: Settings, identity: Mapping[str, object], digest: str | None) -> None:
    """Raise `SettingError` unless the outputs belong to the data and the teacher of the run.

    Top-k outputs also require the temperature at which they were computed. Outputs contain no hidden states to match.

    Args:
        saved: The stored outputs.
        settings: The settings of the run.
        identity: The result of `outputs_identity` for the run.
        digest: The SHA-256 of the teacher of the run; None accepts any teacher.
    """
    manifest = saved.manifest
    changed = differences(manifest.identity, identity)
    if digest is not None:
        changed += differences({"teacher_sha256": manifest.teacher_sha256}, {"teacher_sha256": digest})
    if manifest.top_k is not None:
        actual = {"temperature": settings.objective.temperature, "temperature_end": settings.objective.temperature_end}
        changed += differences({"temperature": manifest.temperature, "temperature_end": None}, actual)
    if changed:
        raise SettingError(f"the outputs in {saved.path} belong to another run: {'; '.join(changed)}")
    if settings.objective.feature_weight or settings.objective.feature_weight_end:
        raise SettingError(f"the outputs in {saved.path} have no hidden states to match; use a feature_weight of 0")


def stored_teacher(saved: SavedOutputs) -> Teacher | TopKTeacher:
    """Return a teacher that reads stored outputs. Batches must have `examples`."""
    return _StoredLogits(saved) if saved.manifest.top_k is None else _StoredTopK(saved)


class _StoredLogits:
    """A teacher with all stored logits."""

    def __init__(self, saved: SavedOutputs) -> None:
        self._saved, self.vocab_size = saved, saved.manifest.vocab_size

    def logits(self, batch: Batch) -> Tensor:
        return _stored_outputs(self._saved, batch)["logits"]


class _StoredTopK:
    """A teacher with stored logits of the most probable tokens."""

    def __init__(self, saved: SavedOutputs) -> None:
        self._saved, self.vocab_size = saved, saved.manifest.vocab_size

    def top_k(self, batch: Batch) -> TopK:
        outputs, temperature = _stored_outputs(self._saved, batch), self._saved.manifest.temperature
        assert temperature is not None
        return TopK(outputs["logits"], outputs["tokens"], outputs["rest"], temperature)


def _stored_outputs(saved: SavedOutputs, batch: Batch) -> dict[str, Tensor]:
    """Return the outputs of a batch by name, [B, T, ...] on the CPU, 0 at unscored positions."""
    labels_BT = labels_of_logits(batch.labels.cpu())
    scored_BT = labels_BT != IGNORE_INDEX
    rows = [
        _stored_row(saved, batch, labels_BT[b][scored_BT[b]], b)
        for b in range(len(labels_BT))
        if bool(scored_BT[b].any())
    ]
    outputs = {}
    for name, (dtype, shape) in saved.shapes.items():
        outputs[name] = torch.zeros(*labels_BT.shape, *shape, dtype=dtype, device="cpu")
        if rows:  # files contain the scored positions only, in the order of `scored_BT`
            outputs[name][scored_BT] = torch.cat([row[name] for row in rows])
    return outputs


def _stored_row(saved: SavedOutputs, batch: Batch, labels_N: Tensor, b: int) -> dict[str, Tensor]:
    """Return the stored outputs of row b of a batch, which has the labels `labels_N` at its scored positions.

    Raise `DataError` if the row has no number, or if other labels are stored.
    """
    if batch.examples is None:
        raise DataError("the batches have no example numbers, so outputs on disk cannot be found: set Batch.examples")
    number = int(batch.examples[b])
    row = saved.row(number)
    if not torch.equal(row["labels"].long(), labels_N):
        raise DataError(f"example {number} has other tokens to predict than the outputs of the teacher in {saved.path}")
    return row
