"""Distillation between vocabularies of different sizes. The smaller one contains the first tokens of the larger one.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar, cast, get_args

import torch
from torch import Tensor

from reference_trainer.distillation.heads import Gradients, Head, HeadStudent, HeadTeacher
from reference_trainer.distillation.protocols import (
    Batch,
    EvaluatedStudent,
    FeaturePass,
    Outputs,
    Student,
    StudentPass,
    Teacher,
    TopKTeacher,
    checked_logits,
    feature_student,
    feature_teacher,
)
from reference_trainer.errors import SettingError, ShapeError, VocabularyError

VocabularyMode = Literal["truncate", "truncate-student", "pad"]
"""The way in which `share_vocabulary` makes the sizes of two vocabularies equal."""

AnyTeacher = TypeVar("AnyTeacher", bound=Teacher | TopKTeacher)
Learner = TypeVar("Learner", Student, EvaluatedStudent)


def share_vocabulary(
    teacher: AnyTeacher, student: Learner, mode: VocabularyMode
) -> tuple[AnyTeacher | Teacher, Learner]:
    """Return a teacher and a student with equal `vocab_size`; one of them is wrapped if the sizes differ.

    - "truncate": the teacher's surplus logits are cut before the softmax, so the teacher's distribution is renormalised
      over the student's tokens.
    - "truncate-student": the student's surplus logits are cut, and their gradient is 0.
    - "pad": the model with the smaller vocabulary gets logits of -inf for the missing tokens: their probability is 0.
      If the student is padded, the cross-entropy is +inf where a missing token is a label, and the forward KL where it
      has a probability above 0 in the teacher. If the teacher is padded, the reverse KL is +inf where a missing token
      has a probability above 0 in the student.

    A student inside a wrapper receives a gradient with its original number of logits.

    Raises:
        VocabularyError: The model to be truncated is the smaller one, or the mode changes the number of logits of a
            teacher that returns only its most probable tokens.
        SettingError: The mode is unknown.
    """
    if mode not in get_args(VocabularyMode):
        raise SettingError(f"invalid value {mode!r} for 'mode': expected one of {', '.join(get_args(VocabularyMode))}")
    teacher_size, student_size = teacher.vocab_size, student.vocab_size
    if teacher_size == student_size:
        return teacher, student
    # The model to truncate must have the larger vocabulary.
    if {"truncate": teacher_size, "truncate-student": student_size}.get(mode) == min(teacher_size, student_size):
        raise VocabularyError(
            f"mode {mode!r} has no surplus logits to cut: teacher vocab_size {teacher_size}, student vocab_size "
            f"{student_size}; check that the tokenizers match, then use 'truncate', 'truncate-student' or 'pad'"
        )
    common = max(teacher_size, student_size) if mode == "pad" else min(teacher_size, student_size)
    if teacher_size == common:
        return teacher, _ResizedStudent(student, common)
    if not isinstance(teacher, Teacher):
        raise VocabularyError(
            f"mode {mode!r} would give the teacher {common} logits instead of {teacher_size}, but only its most "
            "probable tokens are known; store all logits, or use a mode that changes the student"
        )
    return _ResizedTeacher(teacher, common), student


class _ResizedTeacher:
    """A wrapper of a teacher that changes the number of its logits."""

    def __init__(self, teacher: Teacher, vocab_size: int) -> None:
        self._teacher = teacher
        self._vocab_size = vocab_size

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def logits(self, batch: Batch) -> Tensor:
        return self._resized(self._teacher.logits(batch), batch)

    def outputs(self, batch: Batch) -> Outputs:
        outputs = feature_teacher(self._teacher).outputs(batch)
        return Outputs(self._resized(outputs.logits, batch), outputs.hidden_states)

    def head(self, batch: Batch, *, hidden_states: bool = False) -> tuple[Head, Sequence[Tensor]] | None:
        # A `Head` cuts or pads its logits to its `vocab_size`.
        teacher = self._teacher
        output = teacher.head(batch, hidden_states=hidden_states) if isinstance(teacher, HeadTeacher) else None
        return output and (replace(output[0], vocab_size=self._vocab_size), output[1])

    def _resized(self, logits_BTV: Tensor, batch: Batch) -> Tensor:
        checked_BTV = checked_logits("teacher", logits_BTV, batch.tokens, self._teacher.vocab_size)
        return _resized(checked_BTV, self._vocab_size, -torch.inf)


class _ResizedStudent:
    """A wrapper of a student that changes the number of its logits."""

    def __init__(self, student: Student, vocab_size: int) -> None:
        self._student = student
        self._vocab_size = vocab_size

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def forward(self, batch: Batch) -> StudentPass:
        return self._resized(self._student.forward(batch), batch)

    def forward_features(self, batch: Batch) -> FeaturePass:
        return self._resized(feature_student(self._student).forward_features(batch), batch)

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of the model in eval mode; see `ModuleStudent`."""
        return _ResizedTeacher(cast(Teacher, self._student), self._vocab_size).logits(batch)

    def outputs(self, batch: Batch) -> Outputs:
        """Return logits and hidden states in eval mode; see `ModuleStudent`."""
        return _ResizedTeacher(cast(Teacher, self._student), self._vocab_size).outputs(batch)

    def offers_head(self, batch: Batch) -> bool:
        return isinstance(self._student, HeadStudent) and self._student.offers_head(batch)

    def forward_head(self, batch: Batch, consume: Callable[[Head], Gradients], **options: bool) -> FeaturePass:
        student, size = cast(HeadStudent, self._student), self._vocab_size
        return student.forward_head(batch, lambda head: consume(replace(head, vocab_size=size)), **options)

    def _resized(self, inner_pass: StudentPass, batch: Batch) -> _ResizedPass:
        return _ResizedPass(inner_pass, batch, self._student.vocab_size, self._vocab_size)


class _ResizedPass:
    """A pass with another number of logits; the columns that it adds or cuts have no gradient."""

    def __init__(self, inner_pass: StudentPass, batch: Batch, inner_size: int, vocab_size: int) -> None:
        self._pass, self._inner_size = inner_pass, inner_size
        logits_BTV = checked_logits("student", self._pass.logits, batch.tokens, self._inner_size)
        self._logits_BTV = _resized(logits_BTV, vocab_size, -torch.inf)

    @property
    def logits(self) -> Tensor:
        return self._logits_BTV

    @property
    def hidden_states(self) -> Sequence[Tensor]:
        return self._pass.hidden_states if isinstance(self._pass, FeaturePass) else ()

    def backward(self, logit_gradient: Tensor, hidden_gradients: Sequence[Tensor | None] = ()) -> None:
        if logit_gradient.shape != self._logits_BTV.shape:
            actual, expected = list(logit_gradient.shape), list(self._logits_BTV.shape)
            raise ShapeError(f"the gradient has shape {actual}, the logits {expected}; expected equal shapes")
        # Columns that were cut get a gradient of 0. The gradient of columns that were added is dropped.
        inner_gradient = _resized(logit_gradient, self._inner_size, 0.0)
        if isinstance(self._pass, FeaturePass):
            self._pass.backward(inner_gradient, hidden_gradients)
        else:
            self._pass.backward(inner_gradient)


def _resized(x_BTV: Tensor, vocab_size: int, fill: float) -> Tensor:
    """Return `x_BTV` with `vocab_size` columns: surplus columns are cut, missing columns are filled with `fill`."""
    kept_BTV = x_BTV[..., :vocab_size]
    missing = vocab_size - kept_BTV.shape[-1]
    return torch.nn.functional.pad(kept_BTV, (0, missing), value=fill) if missing else kept_BTV
