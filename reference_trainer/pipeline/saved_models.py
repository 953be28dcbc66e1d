"""The command `evaluate`: saved models and checkpoints on one text, each against the same teacher."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reference_trainer.config.settings import Settings
from reference_trainer.data.text import Rows, Text, read_text
from reference_trainer.distillation.metrics import derived
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleTeacher
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import DataError, ModelFileError, TrainerError
from reference_trainer.models.decoder import Decoder
from reference_trainer.models.placement import computing_in, device_name, usable_device
from reference_trainer.pipeline.checkpoint_list import checkpoint_student
from reference_trainer.pipeline.checkpointing import CHECKPOINTS, RUN_ID
from reference_trainer.pipeline.parts import EVALUATED_BYTES, rows_of
from reference_trainer.storage.export import MANIFEST, WEIGHTS, load_decoder, verify_manifest, versions, weights_digest
from reference_trainer.storage.files import path_in_json
from reference_trainer.storage.whole_weights import read_weights
from reference_trainer.training.evaluation import evaluate

__all__ = ["Evaluated", "Evaluation", "SavedModel", "as_run", "evaluate_saved", "load_saved", "report", "table"]

AT_ONE = Weights(temperature=1.0, ce_weight=1.0, kd_weight=1.0)
OF_A_MODEL = ("hard_loss",)
OF_A_RUN = ("length", "documents", "separator", "dtype")
"""Settings by which a run has evaluated its student."""
NUMBER = 12  # characters of a number of six digits, at most
AGAINST_A_TEACHER = ("hard_loss", "kl_at_1", "agreement", "teacher_loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model or a checkpoint. digest: SHA-256 of its weights, as exported."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated(SavedModel):
    """Sums and counts of one model over the scored bytes of a text."""

    sums: dict[str, MetricSum]

    @property
    def metrics(self) -> dict[str, float]:
        """Return the means, in nats per byte where they are losses, and the perplexities."""
        return derived(self.sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Models that were evaluated on one text, and what their numbers depend on. whole: not only the held-back part.

    paths: of all models that were asked for.
    """

    paths: Sequence[Path]
    text: Text
    whole: bool
    settings: Settings
    device: torch.device
    teacher: SavedModel | None
    models: Sequence[Evaluated]


def as_run(paths: Sequence[Path], given: Mapping[str, Any]) -> Settings:
    """Return the `given` settings; length, documents and dtype are else those of the run of the first model with any.

    So all models are measured alike. Raise `SettingError` for invalid ones.
    """
    found = next(filter(None, map(_of_run, paths)), {})
    return Settings(**{**found, **given})


def _of_run(path: Path) -> dict[str, Any]:
    """Return the settings of a manifest by which a run evaluates; none without a manifest of a run."""
    try:
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        kept = content.get("settings") or content.get("conditions") or {}
        found = {name: kept[name] for name in OF_A_RUN if name in kept}
        Settings(**found)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):  # it is reported when the model is loaded
        return {}
    return found


def evaluate_saved(
    paths: Sequence[Path],
    settings: Settings,
    *,
    whole: bool = False,
    done: Callable[[Evaluation], object] = lambda evaluation: None,
    unfit: Callable[[TrainerError], object] | None = None,
) -> Evaluation:
    """Return sums of each model in float64, at temperature 1.

    settings: data, length, documents, separator, dtype, batch_size, device and teacher count; without a teacher there
    is only the loss on the text. whole: over the whole text; by default over what a run on it holds back and evaluates.
    One model is in memory at a time, beside the teacher. done: called after each model, with those so far. unfit:
    called with the error of a model that is left out then; by default it is raised. Errors: those of `load_saved` and
    `read_text`, `DataError` for a byte that a model has no token for, `VocabularyError` for a teacher with other
    tokens, `LogitsError` for logits that are not finite; each names the model.
    """
    device, length = usable_device(settings.device), settings.length
    text = read_text(settings.data, 1 if whole else length)
    part = torch.cat([text.training, text.held_back]) if whole else text.held_back[: max(EVALUATED_BYTES, length)]
    if len(part) < length:
        raise DataError(f"{text.name} holds {len(part)} bytes; expected at least {length}, the length of a sequence")
    rows, largest = rows_of(settings, part, device), int(part.max())
    scoring = partial(_Scoring, device=device, dtype=settings.dtype, largest=largest)
    teacher = None if settings.teacher is None else scoring(settings.teacher)
    models: list[Evaluated] = []
    evaluation = Evaluation(
        paths=paths,
        text=text,
        whole=whole,
        settings=settings,
        device=device,
        teacher=None if teacher is None else SavedModel(path=teacher.path, digest=teacher.digest),
        models=models,
    )
    for path in paths:
        try:
            models.append(_evaluated(scoring(path), teacher, rows))
        except TrainerError as error:
            if unfit is None:
                raise
            unfit(error)
        else:
            done(evaluation)
    return evaluation


def _evaluated(student: _Scoring, teacher: _Scoring | None, rows: Rows) -> Evaluated:
    try:
        sums = evaluate(teacher or student, student, rows, AT_ONE)
    except TrainerError as error:
        error.add_note(f"in the evaluation of {student.path}")
        raise
    names = OF_A_MODEL if teacher is None else AGAINST_A_TEACHER
    return Evaluated(path=student.path, digest=student.digest, sums={name: sums[name] for name in names})


class _Scoring:
    """A saved model that gives its logits for the rows, once for each batch, also if it is teacher and student."""

    def __init__(self, path: Path, *, device: torch.device, dtype: str, largest: int) -> None:
        decoder = load_saved(path)
        self.path, self.digest, self.vocab_size = path, weights_digest(decoder), decoder.config.vocab_size
        if largest >= self.vocab_size:
            raise DataError(f"the text has byte {largest}, and {path} has {self.vocab_size} tokens; expected more")
        self._model = ModuleTeacher(computing_in(dtype, decoder.to(device)), self.vocab_size)
        self._last: tuple[Batch, Tensor] | None = None

    def logits(self, batch: Batch) -> Tensor:
        if self._last is None or self._last[0] is not batch:
            self._last = batch, self._model.logits(batch)
        return self._last[1]


def load_saved(path: Path) -> Decoder:
    """Return the model in a directory, or the student of a checkpoint, on the CPU in the dtype it was saved in.

    Every file is compared with its digest. Raise `ModelFileError` or `CheckpointError` if it is missing, damaged, or
    not of this package.
    """
    if os.path.isfile(path / WEIGHTS):  # noqa: PTH113  (Path.is_file raises for a name that is too long)
        verify_manifest(path)
        return load_decoder(path)
    if not os.path.isfile(path / MANIFEST):  # noqa: PTH113  (as above)
        raise ModelFileError(f"{path} has no {MANIFEST}; expected a model or a checkpoint{_hint(path)}")
    return checkpoint_student(read_weights(path))


def _hint(path: Path) -> str:
    """Return a hint at the latest checkpoint, if the path is that of a run or of its checkpoints; else no text."""
    latest = (path / CHECKPOINTS / f"{RUN_ID}-latest", path / f"{RUN_ID}-latest")
    found = (each for each in latest if os.path.isdir(each))  # noqa: PTH112  (as for files)
    return next((f"; did you mean {each}?" for each in found), "")


def table(evaluation: Evaluation) -> list[str]:
    """Return a line about what was evaluated, one with the names of the metrics, and one for each model.

    The last line does not depend on the models before, so lines can be printed one by one.
    """
    rows = [{"model": str(each.path)} | _texts(each) for each in evaluation.models]
    widths = {name: max(len(name), NUMBER) for name in rows[0]}
    widths["model"] = max(len(str(path)) for path in (*evaluation.paths, "model"))
    head = {name: name for name in widths}
    lines = ["  ".join(f"{row[name]:<{width}}" for name, width in widths.items()) for row in [head, *rows]]
    return [_conditions(evaluation), *(line.rstrip() for line in lines)]


def _conditions(evaluation: Evaluation) -> str:
    count = evaluation.models[0].sums["hard_loss"].count
    against = "" if evaluation.teacher is None else f", against {evaluation.teacher.path}"
    part = _part(evaluation)
    settings = evaluation.settings
    rows = f"sequences of {settings.length}"
    if settings.documents is not None:
        rows = f"{'padded' if settings.documents == 'pad' else 'packed'} documents of at most {settings.length}"
    computed = f", in {settings.dtype}" if settings.dtype == "bfloat16" else ""
    return f"{evaluation.text.name} ({part}): {count} bytes in {rows}{computed}{against}"


def _part(evaluation: Evaluation) -> str:
    return "whole" if evaluation.whole else "held back"


def _texts(evaluated: Evaluated) -> dict[str, str]:
    return {name: f"{value:.6g}" for name, value in evaluated.metrics.items()}


def report(evaluation: Evaluation) -> dict[str, Any]:
    """Return the evaluation as JSON values."""
    text, teacher = evaluation.text, evaluation.teacher
    of_teacher = None if teacher is None else {"path": path_in_json(teacher.path), "sha256": teacher.digest}
    return {
        "schema": "reference-trainer/evaluation/1",
        "text": {"name": text.name, "sha256": text.digest, "part": _part(evaluation)},
        **{name: getattr(evaluation.settings, name) for name in OF_A_RUN},
        "teacher": of_teacher,
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
