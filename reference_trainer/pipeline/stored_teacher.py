"""A teacher whose outputs are read from the disk, and which outputs belong to a run.

Shape letters: B batch, T position, V vocabulary, K kept tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from reference_trainer.config.settings import Settings
from reference_trainer.distillation.domain import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch, Teacher
from reference_trainer.distillation.step import labels_of_logits
from reference_trainer.distillation.top_k import TopK, TopKTeacher
from reference_trainer.errors import DataError, SettingError
from reference_trainer.storage.retention import differences
from reference_trainer.storage.teacher_outputs import SavedOutputs

__all__ = ["check_outputs", "outputs_identity", "stored_teacher"]

SHAPING = ("length", "documents", "separator", "share_vocabulary", "data_share")
"""Settings that change the rows of the data, or the tokens that have a logit."""


def outputs_identity(settings: Settings, digests: Mapping[str, str], rows: int) -> dict[str, Any]:
    """Return what outputs and the run that reads them have in common, by name. digests: of data and tokenizer."""
    return {**{name: getattr(settings, name) for name in SHAPING}, **digests, "rows": rows}


def check_outputs(saved: SavedOutputs, settings: Settings, wanted: Mapping[str, Any], teacher: str | None) -> None:
    """Raise `SettingError` unless the outputs are those of this data and, if a digest is given, of this `teacher`.

    Those of the most probable tokens have one temperature and no hidden states.
    """
    manifest = saved.manifest
    changed = differences(manifest.of, wanted)
    if teacher is not None:
        changed += differences({"teacher_sha256": manifest.teacher_sha256}, {"teacher_sha256": teacher})
    if manifest.top_k is not None:
        present = {"temperature": settings.temperature, "temperature_end": settings.temperature_end}
        changed += differences({"temperature": manifest.temperature, "temperature_end": None}, present)
    if changed:
        raise SettingError(f"the outputs in {saved.path} belong to another run: {'; '.join(changed)}")
    if settings.feature_weight or settings.feature_weight_end:
        raise SettingError(f"the outputs in {saved.path} have no hidden states to match; use a feature_weight of 0")


def stored_teacher(saved: SavedOutputs) -> Teacher | TopKTeacher:
    """Return the teacher with these outputs. Its batches need the numbers of their `examples`."""
    return _Dense(saved) if saved.manifest.top_k is None else _TopK(saved)


class _Dense:
    """A teacher with every logit."""

    def __init__(self, saved: SavedOutputs) -> None:
        self._saved, self.vocab_size = saved, saved.manifest.vocab_size

    def logits(self, batch: Batch) -> Tensor:
        return _gathered(self._saved, batch)["logits"]


class _TopK:
    """A teacher with the logits of the most probable tokens."""

    def __init__(self, saved: SavedOutputs) -> None:
        self._saved, self.vocab_size = saved, saved.manifest.vocab_size

    def top_k(self, batch: Batch) -> TopK:
        outputs, temperature = _gathered(self._saved, batch), self._saved.manifest.temperature
        assert temperature is not None
        return TopK(outputs["logits"], outputs["tokens"], outputs["rest"], temperature)


def _gathered(saved: SavedOutputs, batch: Batch) -> dict[str, Tensor]:
    """Return the outputs of a batch by name, [B, T, ...] on the CPU, 0 at unscored positions."""
    labels_BT = labels_of_logits(batch.labels.cpu())
    scored_BT = labels_BT != IGNORE_INDEX
    rows = [
        _row(saved, batch, labels_BT[b][scored_BT[b]], b) for b in range(len(labels_BT)) if bool(scored_BT[b].any())
    ]
    gathered = {}
    for name, (dtype, shape) in saved.shapes.items():
        gathered[name] = torch.zeros(*labels_BT.shape, *shape, dtype=dtype, device="cpu")
        if rows:
            gathered[name][scored_BT] = torch.cat([row[name] for row in rows])
    return gathered


def _row(saved: SavedOutputs, batch: Batch, labels_N: Tensor, b: int) -> dict[str, Tensor]:
    """Return the outputs of row b of a batch. Raise `DataError` if it has no number, or other labels than they."""
    if batch.examples is None:
        raise DataError("the batches have no example numbers, so outputs on disk cannot be found: set Batch.examples")
    number = int(batch.examples[b])
    row = saved.row(number)
    if not torch.equal(row["labels"].long(), labels_N):
        raise DataError(f"example {number} has other tokens to predict than the outputs of the teacher in {saved.path}")
    return row
