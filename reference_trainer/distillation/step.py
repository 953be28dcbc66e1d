"""Run one distillation step: both forwards, the loss, and the student's backward.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.heads import Gradients, Head, HeadStudent, HeadTeacher, TeacherOutput, chunked_loss
from reference_trainer.distillation.losses import RowLosses, loss_by_blocks, weighted_sum
from reference_trainer.distillation.objective import IGNORE_INDEX, Weights
from reference_trainer.distillation.protocols import (
    Batch,
    FeaturePass,
    Outputs,
    Student,
    StudentPass,
    Teacher,
    TopK,
    TopKTeacher,
    checked_logits,
    completed,
    feature_student,
    feature_teacher,
)
from reference_trainer.distillation.universal import AlignedTeacher, Frozen, aligned_rows
from reference_trainer.errors import VocabularyError


@dataclass(frozen=True, slots=True)
class MetricSum:
    """An undivided metric: its sum, in the metric's unit, over `count` tokens."""

    sum: float
    count: int

    def __add__(self, other: MetricSum) -> MetricSum:
        return MetricSum(self.sum + other.sum, self.count + other.count)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The results of one step, measured before its gradient is applied.

    Attributes:
        loss: The loss in nats per scored token; None if no token is scored.
        sum: The loss in nats, summed over scored tokens.
        count: Number of scored tokens.
        metrics: Sums by the names of `sums_of`, without "loss"; empty if no token is scored.
    """

    loss: float | None
    sum: float
    count: int
    metrics: Mapping[str, MetricSum]


def kd_step(
    teacher: Teacher,
    student: Student,
    batch: Batch,
    *,
    temperature: float,
    ce_weight: float,
    kd_weight: float,
) -> StepResult:
    """Run both forwards and pass the gradient of the mean loss over scored tokens to the student; return the result.

    Logits at position i are compared with the label of position i + 1; this is the only shift. The gradient has the
    shape [B, T, V] and is divided once by the number of scored tokens. It is 0 in the last position, which predicts no
    token, and everywhere if no token is scored. The caller steps the student's optimizer. Teacher logits and labels
    are moved to the student's device. Loss and gradient depend on logits and labels alone, not on autocast or other
    modes of torch; labels may have any integer dtype.

    Args:
        teacher: The frozen model.
        student: The model that accumulates the gradient.
        batch: The batch.
        temperature: The divisor of the logits of both models in the divergence.
        ce_weight: The weight of the cross-entropy against the labels.
        kd_weight: The weight of temperature^2 * KL(teacher || student).

    Raises:
        VocabularyError: The vocabulary sizes differ; raised before either forward.
        ProviderError: A model returned something other than logits.
        TrainerError: The errors of `losses`. After any error the student has no gradient.
    """
    check_vocabularies(teacher, student)
    labels_BT = labels_of_logits(batch.labels)
    count = int((labels_BT != IGNORE_INDEX).sum())
    weights = Weights(temperature=temperature, ce_weight=ce_weight, kd_weight=kd_weight)
    passed = forward_backward(teacher, student, batch, labels_BT, weights, scale=1 / max(count, 1), metrics=True)
    sums = dict(passed.sums)
    numbers = iter(torch.stack(list(sums.values())).tolist())  # one transfer from the device
    metrics = {name: MetricSum(next(numbers), count) for name in sums}
    total = metrics.pop("loss").sum
    if not count:
        return StepResult(loss=None, sum=total, count=count, metrics={})
    return StepResult(loss=total / count, sum=total, count=count, metrics=metrics)


def check_vocabularies(teacher: Frozen, student: Student | Teacher) -> None:
    """Raise `VocabularyError` if the vocabulary sizes differ, unless the teacher is an `AlignedTeacher`."""
    if isinstance(teacher, AlignedTeacher):
        return
    if teacher.vocab_size != student.vocab_size:
        raise VocabularyError(
            f"different vocab_size: student {student.vocab_size}, teacher {teacher.vocab_size}; probably the "
            f"tokenizers differ or one output layer is padded"
        )


def labels_of_logits(labels_BT: Tensor) -> Tensor:
    """Return the label that the logits of each position predict, int64 [B, T]: -100 in the last position."""
    shifted_BT = torch.full_like(labels_BT, IGNORE_INDEX, dtype=torch.int64)
    shifted_BT[:, :-1] = labels_BT[:, 1:]
    return shifted_BT


@dataclass(frozen=True, slots=True)
class StepRows:
    """The results of one forward and backward: the rows, and their sums by the names of `sums_of`."""

    rows: RowLosses
    sums: Mapping[str, Tensor]


def forward_backward(
    teacher: Frozen | None,
    student: Student,
    batch: Batch,
    labels_BT: Tensor,
    weights: Weights,
    *,
    scale: float | Tensor,
    metrics: bool,
    deferred: bool = False,
    features: FeatureMatching | None = None,
) -> StepRows:
    """Run both forwards, pass `scale` times the gradient of the summed loss to the student, and return the rows.

    1. Run the teacher. It returns logits, its output layer if logits can be formed in chunks, or its most probable
       tokens.
    2. Run the student, and compute loss and gradient of the logits, all at once or in chunks.
    3. Add the distance of hidden states, if it has a weight.
    4. Pass the gradients to the student's backward.

    Args:
        teacher: None if ce_weight is the only weight above 0; then metrics of the teacher are not computed.
        student: The model that accumulates the gradient.
        batch: The batch.
        labels_BT: The labels of the logits, as `labels_of_logits` returns them.
        weights: The arguments of the loss.
        scale: The factor of the gradient.
        metrics: Whether to compute the metrics of the rows.
        deferred: Whether to record an invalid row in `RowLosses.fault` instead of raising.
        features: The hidden states to match if the weights have a feature_weight; by default of the last layers.
            Without a feature_weight the models do not return hidden states.

    Raises:
        TrainerError: As `checked_logits`, `losses` and `features.feature_loss`, before the student has a gradient.
    """
    matched = weights.feature_weight > 0
    # A teacher with another tokenizer has other positions, so its loss compares groups of tokens, not rows.
    if isinstance(teacher, AlignedTeacher) and not matched:
        aligned, student_pass = teacher.aligned(batch, weights.temperature), student.forward(batch)
        student_BTV = checked_logits("student", student_pass.logits, batch.tokens, student.vocab_size).detach()
        tensors = (student_BTV, batch.tokens, labels_BT.to(student_BTV.device))
        rows = aligned_rows(*tensors, aligned, weights, scale=scale, deferred=deferred)
        student_pass.backward(rows.gradient_BTV)
        return StepRows(rows, sums_of(rows, weights, metrics=metrics, all_logits=False, aligned=True))
    with_head = _with_head(student, batch)
    metrics, all_logits = metrics and teacher is not None, not isinstance(teacher, TopKTeacher)
    teacher_output, teacher_states = _run_teacher(teacher, batch, chunked=with_head is not None, matched=matched)
    run_student = partial(_run_student, student) if with_head is None else partial(_run_student_in_chunks, with_head)
    forward_pass, rows, gradient_BTV = run_student(
        batch, teacher_output, labels_BT, weights, matched=matched, scale=scale, metrics=metrics, deferred=deferred
    )
    del teacher_output  # free the memory of the teacher's logits for the backward
    if not matched:
        forward_pass.backward(gradient_BTV)
        return StepRows(rows, sums_of(rows, weights, metrics=metrics, all_logits=all_logits))
    assert isinstance(forward_pass, FeaturePass), "`forward_features` returns a pass with hidden states"
    # One backward from logits and hidden states together, because a second one would need the graph again.
    matching, scored_BT = features or FeatureMatching(), labels_BT.to(gradient_BTV.device) != IGNORE_INDEX
    distance, gradients = matching.differentiate(
        forward_pass.hidden_states, teacher_states, scored_BT, scale * weights.feature_weight
    )
    forward_pass.backward(gradient_BTV, gradients)
    return StepRows(rows, sums_of(rows, weights, metrics=metrics, feature=distance))


def measured_rows(
    teacher: Frozen, student: Teacher, batch: Batch, labels_BT: Tensor, weights: Weights
) -> tuple[RowLosses, Tensor]:
    """Return the rows of both models with their metrics, and the student's most probable tokens, int64 [B, T].

    No gradient is computed. Tokens of unscored rows may be -1. Raise as `forward_backward`.
    """
    if isinstance(teacher, AlignedTeacher):
        student_BTV = checked_logits("student", student.logits(batch), batch.tokens, student.vocab_size)
        aligned = teacher.aligned(batch, weights.temperature)
        rows = aligned_rows(student_BTV, batch.tokens, labels_BT.to(student_BTV.device), aligned, weights)
        return rows, student_BTV.argmax(-1)
    with_head = _with_head(student, batch)
    teacher_output, _ = _run_teacher(teacher, batch, chunked=with_head is not None, matched=False)
    if with_head is not None:
        return _measured_in_chunks(with_head, batch, teacher_output, labels_BT, weights)
    student_BTV = checked_logits("student", student.logits(batch), batch.tokens, student.vocab_size)
    tensors = (student_BTV, _teacher_logits(teacher_output, student_BTV, weights), labels_BT.to(student_BTV.device))
    return loss_by_blocks(*tensors, weights, ignore_index=IGNORE_INDEX, metrics=True), student_BTV.argmax(-1)


def _measured_in_chunks(
    student: HeadStudent, batch: Batch, teacher_output: TeacherOutput, labels_BT: Tensor, weights: Weights
) -> tuple[RowLosses, Tensor]:
    """Return the result of `measured_rows` for a student whose logits are formed in chunks."""
    results: list[tuple[RowLosses, Tensor]] = []

    def consume(head: Head) -> Gradients:
        labels = labels_BT.to(head.hidden_PW.device)
        predicted_BT = torch.full_like(labels, -1)
        rows, gradients = chunked_loss(head, teacher_output, labels, weights, metrics=True, predicted_BT=predicted_BT)
        results.append((rows, predicted_BT))
        return gradients

    student.forward_head(batch, consume, evaluated=True)
    return results[0]


def _with_head(student: object, batch: Batch) -> HeadStudent | None:
    """Return the student if its output layer can be replaced by the loss of this batch."""
    return student if isinstance(student, HeadStudent) and student.offers_head(batch) else None


def _run_teacher(
    teacher: Frozen | None, batch: Batch, *, chunked: bool, matched: bool
) -> tuple[TeacherOutput, Sequence[Tensor]]:
    """Run the teacher. Return its output, and its hidden states if they are `matched`.

    The output is the output layer if logits can be formed in chunks, else the logits; or the most probable tokens.
    """
    if teacher is None or (isinstance(teacher, TopKTeacher) and not matched):
        return None if teacher is None else teacher.top_k(batch), ()
    if chunked and isinstance(teacher, HeadTeacher) and (head := teacher.head(batch, hidden_states=matched)):
        return head
    if matched or isinstance(teacher, TopKTeacher | AlignedTeacher):
        outputs = feature_teacher(teacher).outputs(batch)
    else:
        outputs = Outputs(teacher.logits(batch), ())
    return checked_logits("teacher", outputs.logits, batch.tokens, teacher.vocab_size), outputs.hidden_states


def _teacher_logits(teacher_output: TeacherOutput, student_BTV: Tensor, weights: Weights) -> Tensor:
    """Return the teacher's logits on the student's device; without a teacher, a tensor of the same shape."""
    if teacher_output is None:
        return student_BTV  # only its shape is used
    if isinstance(teacher_output, TopK):
        return completed(teacher_output.to(student_BTV.device), student_BTV, weights.temperature)
    assert isinstance(teacher_output, Tensor), "an output layer is for a student in chunks"
    return teacher_output.to(student_BTV.device)


def _run_student(
    student: Student,
    batch: Batch,
    teacher_output: TeacherOutput,
    labels_BT: Tensor,
    weights: Weights,
    *,
    matched: bool,
    scale: float | Tensor,
    metrics: bool,
    deferred: bool,
) -> tuple[StudentPass, RowLosses, Tensor]:
    """Run the student. Return its pass, the rows, and the gradient of the logits."""
    forward_pass = feature_student(student).forward_features(batch) if matched else student.forward(batch)
    student_BTV = checked_logits("student", forward_pass.logits, batch.tokens, student.vocab_size).detach()
    tensors = (student_BTV, _teacher_logits(teacher_output, student_BTV, weights), labels_BT.to(student_BTV.device))
    rows = loss_by_blocks(*tensors, weights, ignore_index=IGNORE_INDEX, scale=scale, metrics=metrics, deferred=deferred)
    return forward_pass, rows, rows.gradient_BTV


def _run_student_in_chunks(
    student: HeadStudent,
    batch: Batch,
    teacher_output: TeacherOutput,
    labels_BT: Tensor,
    weights: Weights,
    *,
    matched: bool,
    scale: float | Tensor,
    metrics: bool,
    deferred: bool,
) -> tuple[StudentPass, RowLosses, Tensor]:
    """Run the student in chunks. Return its pass, the rows, and the argument of `backward` in place of a gradient."""
    results: list[RowLosses] = []

    # The student calls this function within its forward, in place of its output layer.
    def consume(head: Head) -> Gradients:
        labels = labels_BT.to(head.hidden_PW.device)
        rows, gradients = chunked_loss(
            head, teacher_output, labels, weights, scale=scale, metrics=metrics, deferred=deferred
        )
        results.append(rows)
        return gradients

    forward_pass = student.forward_head(batch, consume, hidden_states=matched)
    return forward_pass, results[0], forward_pass.logits


def sums_of(
    rows: RowLosses,
    weights: Weights,
    *,
    metrics: bool,
    feature: Tensor | None = None,
    all_logits: bool = True,
    aligned: bool = False,
) -> dict[str, Tensor]:
    """Return the sums over scored tokens: float64 scalars on the device of the rows.

    The sums are in nats, except for agreement and distances:

    - loss: the weighted sum.
    - hard_loss: cross-entropy of the student. Left out without `metrics` if its weight is 0.
    - soft_loss: T^2 times the divergence at the temperature T. Left out without `metrics` if its weight is 0.
    - kl_at_T, kl_at_1: KL(teacher || student) at T and at temperature 1, with `metrics`.
    - teacher_loss, teacher_entropy: cross-entropy and entropy of the teacher, with `metrics`.
    - agreement: number of tokens for which both models have the same most probable token, with `metrics`.

    Args:
        rows: The rows.
        weights: The arguments of the loss.
        metrics: Whether the rows have metrics.
        feature: The distance of hidden states, if it is minimised, without a unit. The loss includes its weighted sum.
        all_logits: Whether all logits of the teacher are known. If not, the metrics that compare with the teacher, from
            kl_at_T to agreement, are left out.
        aligned: Whether the rows are the result of `aligned_rows`; then universal_distance replaces soft_loss.
    """
    # Without metrics, terms of weight 0 are not computed, and are left out.
    sums = {"loss": weighted_sum(rows, weights)}
    if feature is not None:
        sums = {"loss": sums["loss"] + weights.feature_weight * feature, "feature": feature}
    if weights.ce_weight or metrics:
        sums["hard_loss"] = rows.cross_entropy_P.sum()
    if weights.kd_weight or metrics:
        sums["universal_distance" if aligned else "soft_loss"] = weights.temperature**2 * rows.divergence_P.sum()
    if metrics and all_logits:
        sums["kl_at_T"], sums["kl_at_1"] = rows.kl_P.sum(), rows.kl_at_1_P.sum()
        sums["teacher_loss"], sums["teacher_entropy"] = rows.teacher_cross_entropy_P.sum(), rows.teacher_entropy_P.sum()
        sums["agreement"] = rows.agreement_P.sum()
    return sums
