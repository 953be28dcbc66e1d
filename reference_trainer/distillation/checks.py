"""Checks of the tensors of a distillation loss.

Shape letters: B batch, T position, P = B * T rows, V vocabulary, F = 1 + 3 * P places of a fault, of which
the first stands for none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reference_trainer.errors import LabelError, LogitsError, ShapeError, VocabularyError

__all__ = ["check_tensors", "first_fault", "raise_fault"]

KINDS = 4  # of one row: none, and the three maxima that are not finite


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


def first_fault(labels_BT: Tensor, scored_P: Tensor, maxima_2P: Tensor, vocabulary: int) -> Tensor:
    """Return the argument of `raise_fault`, 0 if there is nothing to raise: int64, on the device of the labels.

    labels_BT: int64. scored_P: bool. maxima_2P: the largest logit of each row of student and teacher; it is finite
    exactly if the row has a softmax distribution, which is required of every row here. Labels are checked first.
    """
    labels_P = labels_BT.flatten()
    outside_P = scored_P & ((labels_P < 0) | (labels_P >= vocabulary))
    kind_2P = maxima_2P.isnan() + 2 * maxima_2P.isposinf() + 3 * maxima_2P.isneginf()
    kind_F = torch.cat([outside_P.new_zeros(1), outside_P, kind_2P.flatten()])
    first = (kind_F > 0).byte().argmax()  # the first of equal ones
    return KINDS * first + kind_F.take(first)


def raise_fault(fault: int, labels_BT: Tensor, vocabulary: int) -> None:
    """Raise `LabelError` or `LogitsError`, with its position, for a fault that `first_fault` found; 0 is none."""
    if not fault:
        return
    place, kind = divmod(fault, KINDS)
    model, row = divmod(place - 1, labels_BT.numel())
    b, t = divmod(row, labels_BT.shape[1])
    if model == 0:
        raise LabelError(
            f"label {int(labels_BT[b, t])} at position ({b}, {t}) is outside the vocabulary of {vocabulary} tokens; "
            f"probably the tokenizers differ or padding is not labelled with ignore_index"
        )
    name, maximum = ("student", "teacher")[model - 1], ("nan", "inf", "-inf")[kind - 1]
    raise LogitsError(
        f"invalid {name} logits at scored position ({b}, {t}): maximum {maximum}, expected a finite number; probably "
        f"the {name} diverged or the whole vocabulary is masked (ignore_index leaves a position unscored)"
    )
