"""Run one distillation step: both forwards, the loss, and the student's backward.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    complete_logits,
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
    sums = forward_backward(teacher, student, batch, labels_BT, weights, scale=1 / max(count, 1), metrics=True).sums
    values = torch.stack(list(sums.values())).tolist()  # one transfer from the device
    metrics = {name: MetricSum(value, count) for name, value in zip(sums, values, strict=True)}
    total = metrics.pop("loss").sum
    if not count:
        return StepResult(loss=None, sum=total, count=count, metrics={})
    return StepResult(loss=total / count, sum=total, count=count, metrics=metrics)


def check_vocabularies(teacher: Frozen, student: Student | Teacher) -> None:
    """Raise `VocabularyError` if the vocabulary sizes differ. An `AlignedTeacher` may have any vocabulary."""
    if not isinstance(teacher, AlignedTeacher) and teacher.vocab_size != student.vocab_size:
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

    1. Run the teacher. The result is its logits, its output layer if logits can be formed in chunks, or its most
       probable tokens.
    2. Run the student. Compute the loss and the gradient with respect to the logits, for all rows at once or in chunks.
    3. If the weights have a feature_weight, compute the distance of hidden states and its gradient.
    4. Run the student's backward from the gradients.

    Args:
        teacher: The frozen model. It may be None if ce_weight is the only weight above 0; then the metrics of the
            teacher are not computed.
        student: The model that accumulates the gradient.
        batch: The batch.
        labels_BT: The labels of the logits, as `labels_of_logits` returns them.
        weights: The arguments of the loss.
        scale: The factor of the gradient.
        metrics: Whether to compute the metrics of the rows.
        deferred: Whether to record an invalid row in `RowLosses.fault` instead of raising.
        features: The hidden states to match if the weights have a feature_weight; by default, the last layers.
            Without a feature_weight the models do not return hidden states.

    Raises:
        TrainerError: As `checked_logits`, `losses` and `features.feature_loss`, before the student has a gradient.
    """
    with_states = weights.feature_weight > 0
    # A teacher with another tokenizer has other positions, so the loss compares groups of tokens, not rows of logits.
    if isinstance(teacher, AlignedTeacher) and not with_states:
        aligned = teacher.aligned(batch, weights.temperature)
        student_pass = student.forward(batch)
        student_BTV = checked_logits("student", student_pass.logits, batch.tokens, student.vocab_size).detach()
        labels_BT = labels_BT.to(student_BTV.device)
        rows = aligned_rows(student_BTV, batch.tokens, labels_BT, aligned, weights, scale=scale, deferred=deferred)
        student_pass.backward(rows.gradient_BTV)
        return StepRows(rows, sums_of(rows, weights, metrics=metrics, all_logits=False, aligned=True))
    head_student = _as_head_student(student, batch)
    metrics = metrics and teacher is not None
    chunked = head_student is not None
    teacher_output, teacher_states = run_teacher(teacher, batch, chunked=chunked, with_states=with_states)
    forward_pass, rows, gradient_BTV = _run_student(
        student,
        head_student,
        batch,
        teacher_output,
        labels_BT,
        weights,
        with_states=with_states,
        scale=scale,
        metrics=metrics,
        deferred=deferred,
    )
    del teacher_output  # free the memory of the teacher's logits for the backward
    if not with_states:
        forward_pass.backward(gradient_BTV)
        all_logits = not isinstance(teacher, TopKTeacher)
        return StepRows(rows, sums_of(rows, weights, metrics=metrics, all_logits=all_logits))
    assert isinstance(forward_pass, FeaturePass), "`forward_features` returns a pass with hidden states"
    scored_BT = labels_BT.to(gradient_BTV.device) != IGNORE_INDEX
    distance, gradients = (features or FeatureMatching()).differentiate(
        forward_pass.hidden_states, teacher_states, scored_BT, scale * weights.feature_weight
    )
    # One backward from logits and hidden states together: the graph is freed by the first backward.
    forward_pass.backward(gradient_BTV, gradients)
    return StepRows(rows, sums_of(rows, weights, metrics=metrics, feature=distance))


def measured_rows(
    teacher: Frozen, student: Teacher, batch: Batch, labels_BT: Tensor, weights: Weights
) -> tuple[RowLosses, Tensor]:
    """Run both models without a gradient. The arguments and errors are as for `forward_backward`.

    Returns:
        The rows, with their metrics unless the teacher is an `AlignedTeacher`, and the student's most probable tokens,
        int64 [B, T]. At unscored positions, the token may be -1.
    """
    if isinstance(teacher, AlignedTeacher):
        student_BTV = checked_logits("student", student.logits(batch), batch.tokens, student.vocab_size)
        aligned = teacher.aligned(batch, weights.temperature)
        rows = aligned_rows(student_BTV, batch.tokens, labels_BT.to(student_BTV.device), aligned, weights)
        return rows, student_BTV.argmax(-1)
    head_student = _as_head_student(student, batch)
    teacher_output, _ = run_teacher(teacher, batch, chunked=head_student is not None, with_states=False)
    if head_student is not None:
        return _measured_in_chunks(head_student, batch, teacher_output, labels_BT, weights)
    student_BTV = checked_logits("student", student.logits(batch), batch.tokens, student.vocab_size)
    tensors = (student_BTV, whole_logits(teacher_output, student_BTV, weights), labels_BT.to(student_BTV.device))
    return loss_by_blocks(*tensors, weights, ignore_index=IGNORE_INDEX, metrics=True), student_BTV.argmax(-1)


def _measured_in_chunks(
    student: HeadStudent, batch: Batch, teacher_output: TeacherOutput, labels_BT: Tensor, weights: Weights
) -> tuple[RowLosses, Tensor]:
    """Carry out `measured_rows` for a student whose logits are formed in chunks."""
    results: list[tuple[RowLosses, Tensor]] = []

    def consume(head: Head) -> Gradients:
        labels = labels_BT.to(head.hidden_PW.device)
        predicted_BT = torch.full_like(labels, -1)
        rows, gradients = chunked_loss(head, teacher_output, labels, weights, metrics=True, predicted_BT=predicted_BT)
        results.append((rows, predicted_BT))
        return gradients

    student.forward_head(batch, consume, evaluated=True)
    return results[0]


def _as_head_student(student: object, batch: Batch) -> HeadStudent | None:
    """Return the student if its output layer can be replaced by the loss for this batch, else None."""
    return student if isinstance(student, HeadStudent) and student.offers_head(batch) else None


def run_teacher(
    teacher: Frozen | None, batch: Batch, *, chunked: bool, with_states: bool
) -> tuple[TeacherOutput, Sequence[Tensor]]:
    """Run the teacher. Return its output, and its hidden states if `with_states`, else ().

    The output of a `TopKTeacher` is its most probable tokens. With `chunked`, the output is the output layer if the
    teacher offers it. Else the output is the logits.
    """
    if teacher is None:
        return None, ()
    if isinstance(teacher, TopKTeacher) and not with_states:
        return teacher.top_k(batch), ()
    if chunked and isinstance(teacher, HeadTeacher):
        head_and_states = teacher.head(batch, hidden_states=with_states)
        if head_and_states is not None:
            return head_and_states
    # A top-k or aligned teacher comes here only if features are matched: `feature_teacher` raises if the teacher has no
    # hidden states.
    if with_states or isinstance(teacher, TopKTeacher | AlignedTeacher):
        outputs = feature_teacher(teacher).outputs(batch)
    else:
        outputs = Outputs(teacher.logits(batch), ())
    return checked_logits("teacher", outputs.logits, batch.tokens, teacher.vocab_size), outputs.hidden_states


def whole_logits(teacher_output: TeacherOutput, student_BTV: Tensor, weights: Weights) -> Tensor:
    """Return the teacher's logits [B, T, V] on the student's device; without a teacher, the student's logits.

    teacher_output: an output of `run_teacher` without `chunked`; most probable tokens are completed.
    """
    if teacher_output is None:
        return student_BTV  # kd_weight is 0 and metrics are off, so only the shape is used
    if isinstance(teacher_output, TopK):
        return complete_logits(teacher_output.to(student_BTV.device), student_BTV, weights.temperature)
    assert isinstance(teacher_output, Tensor), "a teacher's output layer is used for a student in chunks only"
    return teacher_output.to(student_BTV.device)


def _run_student(
    student: Student,
    head_student: HeadStudent | None,
    batch: Batch,
    teacher_output: TeacherOutput,
    labels_BT: Tensor,
    weights: Weights,
    *,
    with_states: bool,
    scale: float | Tensor,
    metrics: bool,
    deferred: bool,
) -> tuple[StudentPass, RowLosses, Tensor]:
    """Run the student, in chunks if it is a `head_student`. Return its pass, the rows, and the argument of `backward`.

    The argument is the gradient of the logits. The backward of a `head_student` ignores the values of its argument, so
    the logits of its pass are returned, which have the right shape.
    """
    if head_student is None:
        forward_pass = feature_student(student).forward_features(batch) if with_states else student.forward(batch)
        student_BTV = checked_logits("student", forward_pass.logits, batch.tokens, student.vocab_size).detach()
        tensors = (student_BTV, whole_logits(teacher_output, student_BTV, weights), labels_BT.to(student_BTV.device))
        rows = loss_by_blocks(
            *tensors, weights, ignore_index=IGNORE_INDEX, scale=scale, metrics=metrics, deferred=deferred
        )
        return forward_pass, rows, rows.gradient_BTV
    results: list[RowLosses] = []

    # The student calls this function within its forward instead of its output layer.
    def consume(head: Head) -> Gradients:
        labels = labels_BT.to(head.hidden_PW.device)
        rows, gradients = chunked_loss(
            head, teacher_output, labels, weights, scale=scale, metrics=metrics, deferred=deferred
        )
        results.append(rows)
        return gradients

    head_pass = head_student.forward_head(batch, consume, hidden_states=with_states)
    return head_pass, results[0], head_pass.logits


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
        feature: The summed distance of hidden states, without a unit; None if it is not part of the loss. Its sum has
            the name "feature", and is added to the loss with its weight.
        all_logits: Whether the teacher returned all its logits. If not, kl_at_T, kl_at_1, teacher_loss,
            teacher_entropy and agreement are left out.
        aligned: Whether the rows are the result of `aligned_rows`; then universal_distance replaces soft_loss.
    """
    sums = {"loss": weighted_sum(rows, weights)}
    if feature is not None:
        sums["loss"] = sums["loss"] + weights.feature_weight * feature
        sums["feature"] = feature
    if weights.ce_weight or metrics:
        sums["hard_loss"] = rows.cross_entropy_P.sum()
    if weights.kd_weight or metrics:
        sums["universal_distance" if aligned else "soft_loss"] = weights.temperature**2 * rows.divergence_P.sum()
    if metrics and all_logits:
        sums["kl_at_T"] = rows.kl_P.sum()
        sums["kl_at_1"] = rows.kl_at_1_P.sum()
        sums["teacher_loss"] = rows.teacher_cross_entropy_P.sum()
        sums["teacher_entropy"] = rows.teacher_entropy_P.sum()
        sums["agreement"] = rows.agreement_P.sum()
    return sums
