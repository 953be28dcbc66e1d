"""Checks of the arguments of a distillation loss. A passing check of values reads one number back from the device.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_trainer.distillation.domain import IGNORE_INDEX, TEMPERATURES
from reference_trainer.errors import LabelError, SettingError, ShapeError, VocabularyError

__all__ = ["check_labels", "check_settings", "check_tensors"]


def check_settings(temperature: float, ce_weight: float, kd_weight: float, ignore_index: int) -> None:
    """Raise `SettingError` for a setting outside its domain."""
    low, high = TEMPERATURES
    if not (_is_number(temperature) and low <= temperature <= high):
        raise SettingError(
            f"invalid value {temperature!r} for 'temperature': expected a number from {low:g} to {high:g} (usually 1 "
            f"to 4)"
        )
    for name, weight in (("ce_weight", ce_weight), ("kd_weight", kd_weight)):
        if not (_is_number(weight) and 0 <= weight < math.inf):
            raise SettingError(f"invalid value {weight!r} for '{name}': expected a finite number >= 0")
    if not isinstance(ignore_index, int) or isinstance(ignore_index, bool):
        raise SettingError(
            f"invalid value {ignore_index!r} for 'ignore_index': expected an integer, usually {IGNORE_INDEX}"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_tensors(student_BTV: Tensor, teacher_BTV: Tensor, labels_BT: Tensor) -> None:
    """Raise `ShapeError` or `VocabularyError` unless these are logits and labels of one shape on one device."""
    _check_logits("student", student_BTV)
    _check_logits("teacher", teacher_BTV)
    student_vocabulary, teacher_vocabulary = student_BTV.shape[-1], teacher_BTV.shape[-1]
    if student_vocabulary != teacher_vocabulary:
        raise VocabularyError(
            f"different vocabulary sizes: student {student_vocabulary}, teacher {teacher_vocabulary}; probably the "
            f"tokenizers differ or one output layer is padded (remove padding columns before the loss)"
        )
    if not isinstance(labels_BT, Tensor) or labels_BT.is_floating_point() or labels_BT.dtype is torch.bool:
        raise ShapeError(f"invalid labels: {_describe(labels_BT)}, expected an integer tensor [B, T]")
    if not student_BTV.shape[:2] == teacher_BTV.shape[:2] == labels_BT.shape:
        raise ShapeError(
            f"shapes do not match: student {list(student_BTV.shape)}, teacher {list(teacher_BTV.shape)}, labels "
            f"{list(labels_BT.shape)}; expected [B, T, V], [B, T, V] and [B, T]"
        )
    if not student_BTV.device == teacher_BTV.device == labels_BT.device:
        devices = f"{student_BTV.device}, {teacher_BTV.device}, {labels_BT.device}"
        raise ShapeError(f"different devices for student, teacher and labels: {devices}; expected one device")


def _check_logits(model: str, logits_BTV: Tensor) -> None:
    if not isinstance(logits_BTV, Tensor) or not logits_BTV.is_floating_point():
        raise ShapeError(f"invalid {model} logits: {_describe(logits_BTV)}, expected a floating tensor [B, T, V]")
    if logits_BTV.dim() != 3 or logits_BTV.shape[-1] == 0:
        raise ShapeError(f"invalid {model} logits: shape {list(logits_BTV.shape)}, expected [B, T, V] with V >= 1")


def _describe(value: object) -> str:
    return f"{value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__


def check_labels(labels_BT: Tensor, scored_BT: Tensor, vocabulary: int) -> None:
    """Raise `LabelError`, with its position, for a scored label outside the vocabulary."""
    outside_BT = scored_BT & ((labels_BT < 0) | (labels_BT >= vocabulary))
    if outside_BT.any():
        b, t = outside_BT.nonzero()[0]
        raise LabelError(
            f"label {int(labels_BT[b, t])} at position ({b}, {t}) is outside the vocabulary of {vocabulary} tokens; "
            f"probably the tokenizers differ or padding is not labelled with ignore_index"
        )
