"""The command `evaluate`: saved models and checkpoints on one text, each against the same teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reference_trainer.config.settings import Settings
from reference_trainer.data.text import Sequences, Text, read_text
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.providers import ModuleTeacher
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import DataError
from reference_trainer.models.decoder import Decoder
from reference_trainer.models.placement import device_name, usable_device
from reference_trainer.pipeline.checkpoint_list import checkpoint_student
from reference_trainer.pipeline.checkpointing import of_run
from reference_trainer.pipeline.parts import EVALUATED_BYTES
from reference_trainer.storage.export import WEIGHTS, load_decoder, verify_manifest, versions, weights_digest
from reference_trainer.storage.paths import path_in_json
from reference_trainer.storage.whole_weights import read_weights
from reference_trainer.training.evaluation import evaluate
from reference_trainer.training.metrics import derived

__all__ = ["Evaluated", "Evaluation", "evaluate_saved", "load_saved", "report", "table"]

AT_ONE = Weights(temperature=1.0, ce_weight=1.0, kd_weight=1.0)
OF_A_MODEL = ("hard_loss",)
AGAINST_A_TEACHER = ("hard_loss", "kl_at_1", "agreement", "teacher_loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Sums and counts of one model over the scored bytes of a text. digest: SHA-256 of its weights, as exported."""

    path: Path
    digest: str
    sums: dict[str, MetricSum]

    @property
    def metrics(self) -> dict[str, float]:
        """Return the means, in nats per byte where they are losses, and the perplexities."""
        return derived(self.sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Models that were evaluated on one text, and what their numbers depend on. whole: not only the held-back part."""

    text: Text
    whole: bool
    length: int
    device: torch.device
    teacher: Path | None
    models: Sequence[Evaluated]


def evaluate_saved(paths: Sequence[Path], settings: Settings, *, whole: bool = False) -> Evaluation:
    """Return sums of each model in float64, at temperature 1.

    settings: data, length, batch_size, device and teacher count; without a teacher there is only the loss on the text.
    whole: over the whole text; by default over what a run on it holds back and evaluates. One model is in memory at a
    time, beside the teacher. Errors: those of `load_saved` and `read_text`, `DataError` for a byte that a model has no
    token for, `VocabularyError` for a teacher with other tokens, `LogitsError` for logits that are not finite.
    """
    device, length = usable_device(settings.device), settings.length
    text = read_text(settings.data, 1 if whole else length)
    part = torch.cat([text.training, text.held_back]) if whole else text.held_back[: max(EVALUATED_BYTES, length)]
    if len(part) < length:
        raise DataError(f"{text.name} holds {len(part)} bytes; expected at least {length}, the length of a sequence")
    rows = Sequences(bytes_N=part, length=length, batch_size=settings.batch_size, device=device)
    teacher = None if settings.teacher is None else _scoring(load_saved(settings.teacher), settings.teacher, rows)
    return Evaluation(
        text=text,
        whole=whole,
        length=length,
        device=device,
        teacher=settings.teacher,
        models=[_evaluated(path, teacher, rows) for path in paths],
    )


def _evaluated(path: Path, teacher: ModuleTeacher | None, rows: Sequences) -> Evaluated:
    decoder = load_saved(path)
    student = _scoring(decoder, path, rows)
    sums = evaluate(teacher or student, student, rows, AT_ONE)
    names = OF_A_MODEL if teacher is None else AGAINST_A_TEACHER
    return Evaluated(path=path, digest=weights_digest(decoder), sums={name: sums[name] for name in names})


def _scoring(decoder: Decoder, path: Path, rows: Sequences) -> ModuleTeacher:
    """Return a saved model that gives its logits for the rows."""
    tokens, largest = decoder.config.vocab_size, rows.bytes_N.max()
    if largest >= tokens:
        raise DataError(f"the text has byte {largest}, and {path} has {tokens} tokens; expected bytes below {tokens}")
    return ModuleTeacher(decoder.to(rows.device), tokens)


def load_saved(path: Path) -> Decoder:
    """Return the model in a directory, or the student of a checkpoint, on the CPU in the dtype it was saved in.

    Every file is compared with its digest. Raise `ModelFileError` or `CheckpointError` if it is missing, damaged, or
    not of this package.
    """
    if (path / WEIGHTS).is_file():
        verify_manifest(path)
        return load_decoder(path)
    return checkpoint_student(of_run(read_weights, path))


def table(evaluation: Evaluation) -> list[str]:
    """Return a line with the names of the metrics, and one for each model."""
    rows = [{"model": str(each.path)} | _texts(each) for each in evaluation.models]
    names = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    head = {name: name for name in names}
    return ["  ".join(f"{row[name]:<{width}}" for name, width in names.items()).rstrip() for row in [head, *rows]]


def _texts(evaluated: Evaluated) -> dict[str, str]:
    return {name: f"{value:.6g}" for name, value in evaluated.metrics.items()}


def report(evaluation: Evaluation) -> dict[str, Any]:
    """Return the evaluation as JSON values."""
    text, teacher = evaluation.text, evaluation.teacher
    return {
        "schema": "reference-trainer/evaluation/1",
        "text": {"name": text.name, "sha256": text.digest, "part": "whole" if evaluation.whole else "held back"},
        "length": evaluation.length,
        "teacher": None if teacher is None else path_in_json(teacher),
        "device": device_name(evaluation.device),
        "versions": versions(),
        "models": [_entry(each) for each in evaluation.models],
    }


def _entry(evaluated: Evaluated) -> dict[str, Any]:
    return {
        "path": path_in_json(evaluated.path),
        "sha256": evaluated.digest,
        "sums": {name: {"sum": each.sum, "count": each.count} for name, each in evaluated.sums.items()},
        "metrics": evaluated.metrics,
    }
