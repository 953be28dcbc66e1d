"""Report a smoke run: its summary lines, and the checks before a full run."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from reference_trainer.callbacks.progress import (
    SMOKE_END_LINE,
    SMOKE_PLANNED_LINE,
    SMOKE_PROJECTION_LINE,
    SMOKE_SUMMARY_LINE,
    Lines,
)
from reference_trainer.distillation.gradcheck import AGREE, relative_difference
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch, Student, Teacher
from reference_trainer.distillation.step import run_teacher, whole_logits
from reference_trainer.distillation.universal import AlignedTeacher, Frozen
from reference_trainer.errors import LogitsError, SmokeError
from reference_trainer.training.evaluation import evaluate
from reference_trainer.training.state import TrainResult


def summary(result: TrainResult, project_to_steps: int, planned_steps: int) -> tuple[str, str, str]:
    """Return three lines: the measured steps, and the projected times of `project_to_steps` and `planned_steps` steps.

    `planned_steps` is the number of steps of the same command without `--smoke`. Raise `SmokeError` if no step ran.
    """
    if result.steps_completed == 0:
        raise SmokeError(
            "smoke mode: 0 steps ran, because a callback ended the run before the first step; nothing was checked"
        )
    pace = result.elapsed_s / result.steps_completed
    seconds = pace * project_to_steps
    first = SMOKE_SUMMARY_LINE.format(
        steps=result.steps_completed,
        elapsed_s=result.elapsed_s,
        initial_loss=math.nan if result.initial_loss is None else result.initial_loss,
        final_loss=math.nan if result.final_loss is None else result.final_loss,
        throughput=result.steps_per_s,
    )
    second = SMOKE_PROJECTION_LINE.format(
        steps=project_to_steps, hours=seconds / 3600, minutes=seconds / 60, seconds=seconds
    )
    return first, second, SMOKE_PLANNED_LINE.format(steps=planned_steps, seconds=pace * planned_steps)


LARGEST_RISE = 0.05
"""Largest allowed rise of the loss of the first batch, in nats; for a loss above 1 nat, a share of the loss."""
LOSS_HINT = "; try a smaller --lr"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check before a full run, and the text that describes the result."""

    passed: bool
    says: str


def checks(
    result: TrainResult, losses: tuple[float, float], gradient_difference: float, device: torch.device
) -> tuple[Check, ...]:
    """Check that the losses are finite, that the loss does not rise, and the gradient; report the peak memory.

    Args:
        result: The result of the training.
        losses: The losses of the same training batch before and after the run.
        gradient_difference: The result of `gradient_difference`.
        device: The device whose peak memory is reported. The check of the memory always passes.
    """
    is_finite = result.finite and result.initial_loss is not None
    before, after = losses
    is_low = after - before <= max(LARGEST_RISE * abs(before), LARGEST_RISE)  # False for NaN
    agrees = gradient_difference <= AGREE
    memory = peak_memory_bytes(device) / 2**20
    return (
        Check(is_finite, f"losses are {'finite' if is_finite else 'not finite'}"),
        Check(is_low, f"loss of the first batch {before:.4f} before, {after:.4f} after{'' if is_low else LOSS_HINT}"),
        Check(agrees, f"gradient differs by {gradient_difference:.1e} from autograd (rounding: at most {AGREE:.0e})"),
        Check(True, f"peak memory {memory:,.0f} MiB {'on the device' if device.type == 'cuda' else 'of the process'}"),
    )


def verdict(checks: Sequence[Check]) -> tuple[str, ...]:
    """Return a line for each check, the line "go" or "no-go", and the last line of a smoke run."""
    return (
        *(f"smoke check: {'ok' if check.passed else 'NOT OK'}: {check.says}" for check in checks),
        f"smoke check: {'go' if all(check.passed for check in checks) else 'no-go'}",
        SMOKE_END_LINE,
    )


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory so far in bytes: of the tensors on a CUDA device, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kibibytes on Linux


def gradient_difference(student: Student, teacher: Frozen, batch: Batch, weights: Weights) -> float:
    """Return the `relative_difference` between closed-form gradient and autograd on a batch.

    The loss of matched hidden states and the universal distance are left out, because the training differentiates them
    by autograd anyway. With an `AlignedTeacher`, only the loss on the labels is compared.
    """
    arguments = asdict(weights)
    del arguments["feature_weight"]
    student_BTV = student.forward(batch).logits
    if isinstance(teacher, AlignedTeacher):  # the training differentiates the universal distance by autograd too
        arguments["kd_weight"] = 0.0
        return relative_difference(student_BTV[:, :-1], student_BTV[:, :-1], batch.labels[:, 1:], **arguments)
    output, _ = run_teacher(teacher, batch, chunked=False, with_states=False)
    teacher_BTV = whole_logits(output, student_BTV, weights)
    return relative_difference(student_BTV[:, :-1], teacher_BTV[:, :-1], batch.labels[:, 1:], **arguments)


@dataclass(frozen=True, slots=True)
class _OneBatch:
    """Rows of an evaluation that consist of one batch."""

    only: Batch
    batches: int = 1

    def __len__(self) -> int:
        return len(self.only.tokens)

    @property
    def device(self) -> torch.device:
        return self.only.tokens.device

    def batch(self, order: Tensor, position: int) -> Batch:
        return self.only


def first_batch_loss(student: Teacher, teacher: Frozen, batch: Batch, weights: Weights) -> float:
    """Return the loss per token of a batch, without the loss of matched hidden states; NaN if a model diverged.

    Call this function with the models in eval mode, so that equal weights give equal losses.
    """
    try:
        sums = evaluate(teacher, student, _OneBatch(batch), weights)
    except LogitsError:
        return math.nan
    kd_weight = weights.kd_weight
    terms = ((weights.ce_weight, "hard_loss"), (kd_weight, "soft_loss"), (kd_weight, "universal_distance"))
    return sum(weight * sums[name].sum / sums[name].count for weight, name in terms if weight and name in sums)


def report_checks(
    result: TrainResult,
    projected: tuple[int, int],
    losses: tuple[float, float],
    gradient_difference: float,
    device: torch.device,
    lines: Lines,
) -> tuple[Check, ...]:
    """Print the summary and the checks of a smoke run, and return the checks. Raise as `summary`.

    Args:
        result: The result of the training.
        projected: The numbers of steps whose time is projected: `project_to_steps`, and the planned steps.
        losses, gradient_difference, device: As for `checks`.
        lines: The writer of the lines.
    """
    for line in summary(result, *projected):
        lines.write(line)
    results = checks(result, losses, gradient_difference, device)
    for line in verdict(results):
        lines.write(line)
    return results


@contextmanager
def reporting_divergence(lines: Lines, *, smoke: bool) -> Iterator[None]:
    """If a smoke run ends because a model diverged, print the failed check before the error propagates.

    Args:
        lines: The writer of the lines.
        smoke: Whether the run is a smoke run; else nothing is printed.
    """
    try:
        yield
    except LogitsError as error:
        if smoke:
            for line in verdict([Check(False, f"losses are not finite: {error}")]):
                lines.write(line)
        raise
